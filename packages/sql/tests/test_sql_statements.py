"""Statements of ``edl sql`` are cut by their words; the SELECT stays as it is."""

from __future__ import annotations

import pytest

from edl.core.problem import Problem
from edl_sql.language.columns import as_lists, columns_in
from edl_sql.language.parser import parse_statements
from edl_sql.language.statements import (
    Describe,
    DropModel,
    Evaluate,
    Explain,
    Predict,
    Query,
    ShowModels,
    ShowTables,
    ShowTrain,
    Statement,
    Train,
)
from edl_sql.language.tokens import Dialect, without_semicolons

MYSQL, POSTGRESQL, STANDARD = Dialect.MYSQL, Dialect.POSTGRESQL, Dialect.STANDARD


def test_the_statements_of_the_design_document() -> None:
    text = """SELECT name, role, salary
FROM employee
TRAIN regressor.DNN
WITH hidden_units=[10, 100, 20, 5], learning_rate=0.01
INTO my_trained_model;

SELECT name, role
FROM testdata
PREDICT testdata.predicted_salary
USING my_trained_model;"""
    train, predict = parse_statements(text)
    assert train == Train(
        "SELECT name, role, salary\nFROM employee",
        "regressor.DNN",
        "my_trained_model",
        {"hidden_units": [10, 100, 20, 5], "learning_rate": 0.01},
    )
    assert predict == Predict(
        "SELECT name, role\nFROM testdata", "testdata", "predicted_salary", "my_trained_model"
    )


def test_the_later_form_of_sqlflow() -> None:
    (train,) = parse_statements(
        "SELECT * FROM iris.train WHERE class < 2 TO TRAIN classifier.DNN WITH model.n_classes=3,"
        " model.hidden_units=[10, 20], train.epoch=10, train.batch_size=8, optimizer.lr=0.5"
        " COLUMN sepal_length, \"petal width\" LABEL 'class' INTO sqlflow_models.my-dnn_1"
    )
    assert train == Train(
        "SELECT * FROM iris.train WHERE class < 2",
        "classifier.DNN",
        "sqlflow_models.my-dnn_1",
        {"n_classes": 3, "hidden_units": [10, 20], "lr": 0.5},
        {"num_epochs": 10, "minibatch_size": 8},
        {"": ("sepal_length", "petal width")},
        "class",
    )
    (predict,) = parse_statements("SELECT * FROM t TO PREDICT iris.test.class USING m;")
    assert predict == Predict("SELECT * FROM t", "iris.test", "class", "m")


@pytest.mark.parametrize(
    ("select", "dialect"),
    [
        ("SELECT a FROM employee train", STANDARD),
        ("SELECT train.a, train.predict FROM train", STANDARD),
        ("SELECT a FROM x JOIN train y USING (id)", STANDARD),
        ("SELECT ' TRAIN m.D INTO x; ' AS a, b FROM t", STANDARD),
        ("SELECT 'it''s' AS a FROM t LIMIT 3", STANDARD),
        ("SELECT a FROM t -- TRAIN m.D INTO x;\n WHERE a > 1", STANDARD),
        ("SELECT a /* TRAIN m.D INTO x; */ FROM t", STANDARD),
        ("SELECT a FROM (SELECT b TRAIN FROM c) AS d", STANDARD),
        ("WITH train AS (SELECT 1 AS a) SELECT a FROM train", STANDARD),
        ("SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY 1", STANDARD),
        ('SELECT "TRAIN", `to train` FROM t', STANDARD),
        ("SELECT $$ it's; TRAIN m.D INTO x $$ AS a", POSTGRESQL),
        ("SELECT $q$ $$ ' $q$ AS a", POSTGRESQL),
        (r"SELECT E'\' TRAIN m INTO x;' AS a", POSTGRESQL),
        ("SELECT a /* /* ' */ ' */ FROM t", POSTGRESQL),
        ("SELECT a[1], '{}'::int[] FROM t", POSTGRESQL),
        (r"SELECT 'it\'s; TRAIN m INTO x' AS a", MYSQL),
        ("SELECT a # it's\n FROM t", MYSQL),
        ("(SELECT 1 AS größe)", STANDARD),
        ("select a from t where b like 'a%' and c = :name", STANDARD),
    ],
)
@pytest.mark.parametrize("to", ["", "TO "])
def test_the_select_is_what_was_written(select: str, dialect: Dialect, to: str) -> None:
    expected = Train(select, "m.D", "train", {"a": "TRAIN"})
    text = f"{select} {to}TRAIN m.D WITH a='TRAIN' INTO train;"
    assert parse_statements(text, dialect) == [expected]
    assert parse_statements(f"{select}\n{to.lower()}predict t.c USING m", dialect) == [
        Predict(select, "t", "c", "m")
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("a=1, b=-2.5e-3", {"a": 1, "b": -2.5e-3}),
        ("a=[1, [2, 3]], b=(4,)", {"a": [1, [2, 3]], "b": (4,)}),
        ("a='x, y', b=\"INTO\"", {"a": "x, y", "b": "INTO"}),
        ("a=True, b=false, c=NULL", {"a": True, "b": False, "c": None}),
        ("a={'x': 1, 'y': [2, 3]}, b={}", {"a": {"x": 1, "y": [2, 3]}, "b": {}}),
    ],
)
def test_values(values: str, expected: dict[str, object]) -> None:
    (train,) = parse_statements(f"SELECT 1 TRAIN m WITH {values} INTO x")
    assert isinstance(train, Train)
    assert train.params == expected


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("m", Evaluate("SELECT a FROM evaluate", "m")),
        ("db.my-m LABEL 'y' INTO r.t", Evaluate("SELECT a FROM evaluate", "db.my-m", "y", "r.t")),
        (
            'm WITH validation.metrics="Accuracy,AUC" LABEL y INTO t',
            Evaluate("SELECT a FROM evaluate", "m", "y", "t", {"eval_metrics_fn": "Accuracy,AUC"}),
        ),
    ],
)
@pytest.mark.parametrize("to", ["", "TO "])
def test_a_model_is_evaluated(clauses: str, expected: Evaluate, to: str) -> None:
    text = f"SELECT a FROM evaluate {to}EVALUATE {clauses};"
    assert parse_statements(text + " SHOW TRAIN m") == [expected, ShowTrain("m")]


def test_functions_of_columns() -> None:
    (train,) = parse_statements(
        "SELECT * FROM t TO TRAIN m.D COLUMN a, NUMERIC(b), bucket(DENSE(c, 1), [1, 2.5]),"
        " EMBEDDING(CROSS([d, BUCKET(c, [1])], 100000), 8, 'mean'), INDICATOR(d) FOR wide"
        ' COLUMN EMBEDDING(CATEGORY_ID(e, 9), 4), "BUCKET" FOR deep LABEL y INTO x'
    )
    assert isinstance(train, Train)
    assert {target: list(map(as_lists, terms)) for target, terms in train.columns.items()} == {
        "wide": [
            "a",
            ["NUMERIC", "b"],
            ["BUCKET", ["DENSE", "c", 1], [1, 2.5]],
            ["EMBEDDING", ["CROSS", ["d", ["BUCKET", "c", [1]]], 100000], 8, "mean"],
            ["INDICATOR", "d"],
        ],
        "deep": [["EMBEDDING", ["CATEGORY_ID", "e", 9], 4], "BUCKET"],
    }
    assert list(columns_in(train.columns["wide"])) == ["a", "b", "c", "d", "c", "d"]


def test_the_way_a_model_was_trained() -> None:
    shown: list[Statement] = [ShowTrain("m"), ShowTrain("n")]
    assert parse_statements("SHOW TRAIN m; show train n ; -- end") == shown


@pytest.mark.parametrize(
    ("text", "what", "marked"),
    [
        ("", "there is no statement", ""),
        (" ; -- nothing", "there is no statement", ""),
        ("SELECT a TO EXPLAIN m USING T", "only TreeExplainer", "T"),
        ("SELECT a TO EXPLAIN m WITH a=1", "EXPLAIN has no settings", "WITH a"),
        ("SELECT a TO EXPLAIN m LABEL y", "EXPLAIN must be followed by", "EXPLAIN m"),
        ("SELECT a FROM t to maximize x INTO y", "edl does not support MAXIMIZE", "maximize"),
        ("SELECT a FROM t TO RUN x CMD 'y'", "edl does not support RUN", "RUN x"),
        ("SELECT a FROM t TRAIN m.D", "TRAIN must be followed by", "TRAIN m.D"),
        ("SELECT a FROM t TO TRAIN", "TRAIN must be followed by", "TRAIN"),
        ("SELECT a FROM t TRAIN ../m INTO x", "TRAIN must be followed by", "TRAIN ../m"),
        ("SELECT a FROM t PREDICT /c USING m", "PREDICT must be followed by", "PREDICT /c"),
        ("SELECT a FROM t TRAIN", "TRAIN must be followed by", "TRAIN"),
        ("SELECT a FROM t WHERE b = 1 PREDICT", "PREDICT must be followed by", "PREDICT"),
        ("SELECT a FROM (SELECT 1) EVALUATE", "EVALUATE must be followed by", "EVALUATE"),
        ("SELECT a FROM t TO PREDICT t.c", "PREDICT must be followed by", "PREDICT t.c"),
        ("TRAIN m.D INTO x", "a SELECT must come first", "TRAIN m.D INTO x"),
        ("DELETE FROM t TRAIN m.D INTO x", "this is not a SELECT", "DELETE FROM"),
        ("SELECT a TRAIN m LABEL a", "INTO and the name of the model are missing", ""),
        ("SELECT a TRAIN m INTO", "the name of the model is missing after INTO", ""),
        ("SELECT a TRAIN m INTO LABEL a", "missing after INTO", "LABEL a"),
        ("SELECT a TRAIN m INTO ../x", "not a name for a model", "../x"),
        ("SELECT a TRAIN m INTO x INTO y", "INTO appears twice", "INTO y"),
        ("SELECT a TRAIN m INTO x y", "y is not expected here", "y"),
        ("SELECT a TRAIN m WITH a INTO x", "expected = after a", "INTO x"),
        ("SELECT a TRAIN m WITH a= INTO x", "the value of a is missing", "INTO x"),
        ("SELECT a TRAIN m WITH a=relu INTO x", "not a number, text or list", "relu INTO x"),
        ("SELECT a TRAIN m WITH a=1, a=2 INTO x", "a appears twice", "a=2 INTO x"),
        ("SELECT a TRAIN m WITH a=1, schema={} INTO x", "comes from the SELECT", "schema={}"),
        ("SELECT a TRAIN m WITH a=[1, 1e400] INTO x", "too large for a float", "[1, 1e400]"),
        ("SELECT a TRAIN m WITH a={'b': -1e400} INTO x", "too large for a float", "{'b'"),
        ("SELECT a TRAIN m WITH train.steps=2 INTO x", "no setting train.steps", "train.steps"),
        ("SELECT a TRAIN m WITH train.epoch=0 INTO x", "train.epoch: 0 is too small", "train.ep"),
        ("SELECT a TRAIN m WITH train.batch_size='x' INTO x", "train.batch_size", "train.batch"),
        ("SELECT a TRAIN m WITH a=1, train.num_workers=0 INTO x", "num_workers", "train.num"),
        ("SELECT a TRAIN m WITH train.strategy='x' INTO x", "allreduce", "train.strategy"),
        ("SELECT a TO EVALUATE m WITH validation.metrics={} INTO x", "metrics", "validation"),
        ("SELECT a TRAIN m WITH a=[1, 2 INTO x", "this bracket is never closed", "[1, 2 INTO x"),
        ("SELECT a TRAIN m WITH a={'b' INTO x", "this bracket is never closed", "{'b' INTO x"),
        ("SELECT a) TRAIN m INTO x", "no ( is open here", ") TRAIN"),
        ("SELECT 'a TRAIN m INTO x", "this text does not end", "'a TRAIN"),
        ("SELECT * FROM t TARIN m.D LABEL y INTO x", "Did you mean TRAIN?", "TARIN m"),
        ("SELECT * FROM t TO PREDCIT t.p USING x", "Did you mean PREDICT?", "PREDCIT"),
        ("SELECT * FROM t TRAIN m.D LABLE y INTO x", "Did you mean LABEL?", "LABLE y"),
        ("SELECT * FROM t TRAIN m.D LABEL y INOT x", "Did you mean INTO?", "INOT x"),
        ("SELECT * FROM t TRAIN m.D WITH a=1, LABEL y INTO x", "after the comma", ", LABEL"),
        ("SELECT * FROM t TRAIN m.D COLUMN a, LABEL y INTO x", "after the comma", ", LABEL"),
        ("CREATE MODL m OPTIONS() AS S", "Did you mean MODEL?", "MODL m"),
        ("SELECT a TRAIN m COLUMN BUKET(a, [1]) INTO x", "Did you mean BUCKET?", "BUKET"),
        ("SHOW MODELL", "Did you mean MODELS?", "MODELL"),
        ("SELECT a TRAIN m.D WITH train.epoch=0 INTO x", "example: train.epoch=10", "train.ep"),
        ("SELECT a /* TRAIN m INTO x", "this comment does not end", "/* TRAIN"),
        ("SELECT a TRAIN m COLUMN SPARSE(a) INTO x", "no function SPARSE here", "SPARSE(a)"),
        ("SELECT a TRAIN m COLUMN BUCKET(a) INTO x", "number of arguments", "BUCKET(a)"),
        ("SELECT a TRAIN m COLUMN BUCKET(a, [2, 1]) INTO x", "bounds must increase", "[2, 1]"),
        ("SELECT a TRAIN m COLUMN BUCKET(CROSS([a, b], 2), [1]) INTO x", "no function", "CROSS"),
        ("SELECT a TRAIN m COLUMN CROSS([a], 9) INTO x", "two columns at least", "]"),
        ("SELECT a TRAIN m COLUMN CROSS(a, 9) INTO x", "takes a list", "a, 9"),
        (
            "SELECT a TRAIN m COLUMN CATEGORY_ID(a, 0.5) INTO x",
            "not an integer of 1 or more",
            "0.5",
        ),
        ("SELECT a TRAIN m COLUMN EMBEDDING(a, 8, 'max') INTO x", "not one of sum, mean", "'max'"),
        ("SELECT a TRAIN m COLUMN CROSS([a, b], 99999) INTO x", "an input of the", "CROSS"),
        ("SELECT a TRAIN m COLUMN a FOR b COLUMN c INTO x", "needs FOR", "c INTO"),
        ("SELECT a TRAIN m COLUMN a FOR b COLUMN c FOR b INTO x", "appears twice", "b INTO"),
        ("SELECT a TRAIN m COLUMN a COLUMN c INTO x", "COLUMN appears twice", "COLUMN c"),
        ("SELECT a TO EVALUATE m WITH train.epoch=2 INTO x", "no setting train.epoch", "train.ep"),
        ("SELECT a TO EVALUATE m INTO a.b.c", "schema.table", "a.b.c"),
        ("SELECT a TO EVALUATE m USING n", "EVALUATE must be followed by", "EVALUATE m"),
        ("SELECT a TRAIN m LABEL INTO x", "expected the column to learn", "INTO x"),
        ("SELECT a TRAIN m USING n INTO x", "USING of a trained model is for PREDICT", "USING n"),
        ("SELECT a PREDICT c USING m", "PREDICT needs a table and a column", "c USING m"),
        ("SELECT a PREDICT t.c WITH a=1 USING m", "there is no setting a", "a=1"),
        ("SELECT a PREDICT t.c WITH predict.batch_size=0 USING m", "batch_size: ", "predict.b"),
        ("SELECT a PREDICT t.c USING m n", "n is not expected here", "n"),
        ("SHOW GRANTS", "only SHOW MODELS, SHOW TABLES and SHOW TRAIN are known", "SHOW GRANTS"),
        ("SHOW TABLES LIKE 'a'", "LIKE is not expected here", "LIKE"),
        ("DESCRIBE ../m", "not a name for a model", "../m"),
        ('DROP MODEL "my m"', "not a name for a model", '"my m"'),
        ("DROP TABLE t", "edl sql does not send DROP", "DROP TABLE"),
        ("DESCRIBE m n", "n is not expected here", "n"),
        ("SELCT 1", "no statement begins with SELCT", "SELCT 1"),
        ("PRAGMA t", "edl sql does not send PRAGMA", "PRAGMA t"),
    ],
)
def test_a_mistake_is_marked(text: str, what: str, marked: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_statements(text)
    assert what in f"{caught.value.what} {caught.value.remedy}"
    _, line, mark = caught.value.where.split("\n")
    assert line[2:] == text
    assert text[mark.index("^") - 2 :].startswith(marked)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("show models", ShowModels()),
        ("show tables", ShowTables()),
        ("SHOW TABLES FROM iris", ShowTables("iris")),
        ("DESCRIBE db.m-1", Describe("db.m-1", "db.m.-.1")),
        ("desc model m", Describe("m", "m")),
        ("DESCRIBE model", Describe("model", "model")),
        ('DESCRIBE s."my t"', Describe("", "s.my t")),
        ("DESCRIBE 'people.csv'", Describe("people.csv", '"people.csv"')),
        ("DROP MODEL m", DropModel("m")),
        ("DROP MODEL IF EXISTS m", DropModel("m", if_exists=True)),
        ("SELECT a FROM t TO EXPLAIN my-m INTO r.t", Explain("SELECT a FROM t", "my-m", "r.t")),
        ("SELECT a FROM t explain e", Query("SELECT a FROM t explain e")),
        ("SELECT train.a FROM t, train", Query("SELECT train.a FROM t, train")),
        *(
            (query, Query(query))
            for query in (
                "SELECT * FROM iris.train LIMIT 5",
                "SELECT * FROM train WHERE a = 1",
                "SELECT train FROM t",
                "SELECT a FROM t ORDER BY train DESC",
                "SELECT ml.predict(a) FROM t",
                "SELECT * FROM a JOIN trains t USING (id)",
                "SELECT trian FROM a trains WHERE id = 1",
            )
        ),
        (
            "SELECT a FROM t PREDICT t.p WITH predict.batch_size=8 USING m",
            Predict("SELECT a FROM t", "t", "p", "m", {"minibatch_size": 8}),
        ),
        (
            "SELECT a FROM t PREDICT t.p WITH predict.batch_size='8' USING m",
            Predict("SELECT a FROM t", "t", "p", "m", {"minibatch_size": 8}),
        ),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Query("WITH x AS (SELECT 1) SELECT * FROM x")),
    ],
)
def test_statements_about_models_and_rows(text: str, expected: Statement) -> None:
    assert parse_statements(f"{text};") == [expected]


def test_a_mark_of_byte_order_is_no_part_of_the_first_statement() -> None:
    assert parse_statements("\ufeffSHOW TRAIN m;") == [ShowTrain("m")]


@pytest.mark.parametrize(
    ("query", "alone"),
    [
        ("SELECT a FROM t", "SELECT a FROM t"),
        (" SELECT a FROM t ; ; ", "SELECT a FROM t"),
        ("SELECT a FROM t; -- done; really", "SELECT a FROM t"),
        ("SELECT a FROM t; /* ; */", "SELECT a FROM t"),
        ("SELECT ';' -- all of it;", "SELECT ';' -- all of it;"),
        ("SELECT a FROM t WHERE b = ';", "SELECT a FROM t WHERE b = '"),
        (";", ""),
        ("-- nothing", ""),
    ],
)
def test_semicolons_at_the_end_are_no_part_of_a_query(query: str, alone: str) -> None:
    assert without_semicolons(query, Dialect.STANDARD) == alone


def test_of_a_long_line_the_part_around_the_mistake_is_shown() -> None:
    with pytest.raises(Problem) as caught:
        parse_statements(f"SELECT {'a, ' * 300} b TRAIN m INTO x INTO y{' ' * 300}")
    where, line, mark = caught.value.where.split("\n")
    assert where == "line 1, column 926"
    assert line[2] == "…"
    assert len(line) < 110
    assert line[mark.index("^") :].startswith("INTO y")


def test_the_mark_is_in_the_right_line_also_under_wide_letters() -> None:
    with pytest.raises(Problem) as caught:
        parse_statements("SELECT a\nFROM \t'表' TRAIN m INTO x INTO y\n;")
    expected = "line 2, column 26\n  FROM \t'表' TRAIN m INTO x INTO y\n       \t"
    assert caught.value.where == expected + " " * 20 + "^"


@pytest.mark.parametrize(
    ("clauses", "columns", "label"),
    [
        ("LABEL label", {}, "label"),
        ("COLUMN train LABEL label", {"": ("train",)}, "label"),
        ("COLUMN label, column LABEL y", {"": ("label", "column")}, "y"),
        ("COLUMN label LABEL y", {"": ("label",)}, "y"),
        ("LABEL using", {}, "using"),
    ],
)
def test_columns_may_have_the_names_of_clauses(
    clauses: str, columns: dict[str, object], label: str
) -> None:
    [found] = parse_statements(f"SELECT train, label FROM t TRAIN a.B {clauses} INTO m")
    assert isinstance(found, Train)
    assert (found.select, found.model_def) == ("SELECT train, label FROM t", "a.B")
    assert (found.columns, found.label, found.into) == (columns, label, "m")
    assert found.text[found.positions.find("LABEL") :].startswith(label)


def test_a_table_may_have_the_name_of_a_clause() -> None:
    [found] = parse_statements('SELECT * FROM label PREDICT label."a.b".p USING m')
    assert isinstance(found, Predict)
    assert (found.table, found.column) == ('label."a.b"', "p")


@pytest.mark.parametrize(
    "value", ["[1, -- one\n 2]", "[1, /* ] */ 2]", "[1,2]", "-- first\n[1, 2]", "[1, -- ]\n\n2]"]
)
def test_comments_within_values(value: str) -> None:
    [found] = parse_statements(f"SELECT * FROM t TRAIN a.B WITH x={value}, y=.5 INTO m")
    assert isinstance(found, Train)
    assert found.params == {"x": [1, 2], "y": 0.5}


def test_a_select_of_duckdb_may_begin_with_from() -> None:
    [found] = parse_statements("FROM 'x.csv' SELECT id TO TRAIN a.B INTO m")
    assert isinstance(found, Train)
    assert found.select == "FROM 'x.csv' SELECT id"
