"""``CREATE MODEL`` of BigQuery means TRAIN."""

from __future__ import annotations

import pytest

from edl.core.problem import Problem
from edl_sql.language.columns import as_lists
from edl_sql.language.parser import parse_statements
from edl_sql.language.statements import IfThere, Train


def test_the_statement_of_bigquery() -> None:
    select = "SELECT a, b AS x FROM t WHERE a > 1"
    text = (
        "CREATE MODEL `shop.prices` OPTIONS(MODEL_TYPE='DNN_REGRESSOR', hidden_units=[8, 4],"
        " learn_rate=0.1, max_iterations=20, input_label_cols=['a']) AS\n"
    )
    (found,) = parse_statements(f"{text}{select};")
    assert found == Train(
        select,
        "DNNRegressor",
        "shop.prices",
        {"hidden_units": [8, 4], "learning_rate": 0.1},
        {"num_epochs": 20},
        label="a",
    )
    assert isinstance(found, Train)
    assert found.text == text + select
    assert found.positions.start == len(text)
    assert found.text[found.positions.find("WITH", "hidden_units") :].startswith("hidden_units")


def test_iterations_of_trees_are_a_parameter() -> None:
    (found,) = parse_statements(
        "CREATE MODEL m OPTIONS(model_type='BOOSTED_TREE_CLASSIFIER', max_iterations=9,"
        " max_tree_depth=3, subsample=0.5) AS SELECT 1"
    )
    assert isinstance(found, Train)
    assert found.model_def == "BoostedTreesClassifier"
    assert found.params == {"max_iterations": 9, "max_tree_depth": 3, "subsample": 0.5}
    assert not found.settings


@pytest.mark.parametrize(
    ("words", "if_there"),
    [
        ("OR REPLACE MODEL", IfThere.REPLACE),
        ("MODEL IF NOT EXISTS", IfThere.KEEP),
        ("MODEL", IfThere.REFUSE),
    ],
)
def test_what_is_done_with_a_model_that_is_there(words: str, if_there: IfThere) -> None:
    (found,) = parse_statements(f"CREATE {words} m OPTIONS(model_type='linear_reg') AS SELECT 1")
    assert isinstance(found, Train)
    assert (found.into, found.if_there) == ("m", if_there)


@pytest.mark.parametrize(("kind", "label"), [("linear_reg", "label"), ("autoencoder", "")])
def test_the_label_without_input_label_cols(kind: str, label: str) -> None:
    text = f"CREATE MODEL m OPTIONS(model_type='{kind}', data_split_method='no_split') AS SELECT 1"
    (found,) = parse_statements(text)
    assert isinstance(found, Train)
    assert (found.label, found.params) == (label, {})


def test_the_older_name_of_the_label() -> None:
    (found,) = parse_statements(
        "CREATE MODEL m OPTIONS(model_type='linear_reg', labels=['a']) AS SELECT 1"
    )
    assert isinstance(found, Train)
    assert (found.label, found.params) == ("a", {})


@pytest.mark.parametrize(
    ("item", "terms"),
    [
        ("a", ["a"]),
        ("a AS b", ["a"]),
        ("*", [".*"]),
        ("* EXCEPT(a, `b c`)", [r"(?!(?:a|b\ c)$).*"]),
        ("ML.STANDARD_SCALER(a) OVER() AS b", [["NUMERIC", "a"]]),
        ("ML.ROBUST_SCALER(a, [25, 75]) OVER()", [["NUMERIC", "a"]]),
        ("ML.IMPUTER(a, 'mean') OVER()", [["NUMERIC", "a"]]),
        ("ml.bucketize(a, [1, 2, 3]) AS b", [["BUCKET", "a", [1, 2, 3]]]),
        ("ML.BUCKETIZE(a, [1, 2, 3], TRUE, 'bucket_ranges')", [["BUCKET", "a", [2]]]),
        ("ML.HASH_BUCKETIZE(a, 50)", [["CATEGORY_HASH", "a", 50]]),
        ("ML.ONE_HOT_ENCODER(a) OVER()", [["INDICATOR", "a"]]),
        (
            "ML.FEATURE_CROSS(STRUCT(a, ML.BUCKETIZE(b, [1]) AS b, c))",
            [
                ["CROSS", ["a", ["BUCKET", "b", [1]]], 1000],
                ["CROSS", ["a", "c"], 1000],
                ["CROSS", [["BUCKET", "b", [1]], "c"], 1000],
            ],
        ),
    ],
)
def test_transform_means_functions_of_columns(item: str, terms: list[object]) -> None:
    text = f"CREATE MODEL m TRANSFORM({item}, y AS label) OPTIONS(model_type='linear_reg',"
    (found,) = parse_statements(f"{text} input_label_cols=['label']) AS SELECT 1")
    assert isinstance(found, Train)
    assert [as_lists(term) for term in found.columns[""]] == [*terms, "y"]
    assert found.label == "y"


@pytest.mark.parametrize(
    ("text", "what", "remedy", "marked"),
    [
        ("CREATE TABLE t AS SELECT 1", "does not send CREATE", "own client", "CREATE"),
        ("CREATE MODEL m OPTIONS(model_type='onnx')", "no model_type ONNX", "init-from", "model_"),
        ("CREATE OR MODEL m", "expected REPLACE", "OPTIONS", "MODEL"),
        ("CREATE MODEL m TRANSFORM(LOG(a) AS b)", "columns and functions", "the SELECT", "LOG"),
        ("CREATE MODEL m TRANSFORM(a, b * 2)", "columns and functions", "the SELECT", "b"),
        (
            "CREATE MODEL m TRANSFORM(a, ML.QUANTILE_BUCKETIZE(b, 3) OVER())",
            "edl does not support ML.QUANTILE_BUCKETIZE",
            "The nearest is ML.BUCKETIZE",
            "ML",
        ),
        ("CREATE MODEL m TRANSFORM(ML.IMPUTER(b, 'median') OVER())", "IMPUTER", "'mean'", "ML"),
        ("CREATE MODEL m TRANSFORM(ML.BUCKETIZE(b, [2, 1]))", "must increase", "BUCKET", "ML"),
        (
            "CREATE MODEL m TRANSFORM(ML.BUCKETIZE(ML.STANDARD_SCALER(b) OVER(), [0, 1]))",
            "ML.BUCKETIZE takes a column here",
            "ML.BUCKETIZE(x",
            "ML",
        ),
        (
            "CREATE MODEL m TRANSFORM(ML.FEATURE_CROSS(STRUCT(a, ML.MAX_ABS_SCALER(b) OVER())))",
            "CROSS cannot be of NUMERIC",
            "CROSS",
            "ML",
        ),
        (
            "CREATE MODEL m OPTIONS(model_type='kmeans') AS SELECT 1",
            "no model_type KMEANS",
            "The nearest is AUTOENCODER.",
            "model_type",
        ),
        (
            "CREATE MODEL m OPTIONS(model_type='dnn_regresor') AS SELECT 1",
            "no model_type",
            "Did you mean DNN_REGRESSOR?",
            "model_type",
        ),
        (
            "CREATE MODEL m OPTIONS(model_type='linear_reg', max_iterations=0) AS SELECT 1",
            "max_iterations: ",
            "OPTIONS",
            "max_iterations",
        ),
        (
            "CREATE MODEL m OPTIONS(model_type='linear_reg', input_label_cols=['a', 'b']) AS S",
            "one label",
            "",
            "input_label_cols",
        ),
        ("CREATE MODEL m OPTIONS(model_type='linear_reg')", "expected AS", "SELECT", ""),
        ("CREATE MODEL m OPTIONS(model_type='linear_reg') AS", "expected AS", "SELECT", ""),
        ("CREATE MODEL m AS SELECT 1", "expected OPTIONS", "OPTIONS", "AS"),
    ],
)
def test_what_is_refused(text: str, what: str, remedy: str, marked: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_statements(text)
    assert what in caught.value.what
    assert remedy in caught.value.remedy
    _, _, mark = caught.value.where.split("\n")
    assert text[mark.index("^") - 2 :].startswith(marked)
