"""``TRAIN``: what a job is told to learn, and from which rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sql_command import Call, caller, prepare_folder

import recordio
import recordio.example
from edl.core.job_result import JobResult
from edl_proto.errors import EdlError, ErrorCode
from edl_sql import rounds
from edl_sql.language.parser import parse_statements
from edl_sql.language.statements import Train
from edl_sql.rounds import describe_epochs, plan_rounds
from edl_sql.statement_checks import restate_refusals
from edl_sql.zoos import OWN_ZOO


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command with statements for a table of people."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()
    return caller(capsys)


def test_a_model_is_validated_and_replaces_its_optimizer(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        seen.update(options)
        (file,) = Path(options["validation_data"][0]).glob("*.recordio")
        source = recordio.open_source(str(file))
        seen["rows"] = [recordio.example.decode(r) for r in source.read(0, source.count())]
        return JobResult("job", "SUCCEEDED", metrics={"accuracy": 0.5})

    monkeypatch.setattr("edl.api.train", train)
    statement = (
        "SELECT id, role FROM people TO TRAIN DNNClassifier WITH model.optimizer='AdamOptimizer',"
        " optimizer.beta_1=0.5, train.seed=7, validation.select={} LABEL role INTO m"
    )
    done = sql("-e", statement.format("'SELECT role, id FROM people WHERE id > 1'"), "-o", "json")
    assert json.loads(done.out)[0]["metrics"] == {"accuracy": 0.5}
    assert [{k: v[0] for k, v in row.items()} for row in seen["rows"]] == [{"id": 2, "label": 1}]
    assert (seen["model_def"], seen["seed"]) == ("classifier.DNN", 7)
    assert (seen["optimizer"], seen["params"]["beta_1"]) == ("keras.optimizers.Adam", 0.5)
    told = sql(
        "-e", statement.format("'SELECT id FROM people'").replace("INTO m", "INTO n"), code=2
    ).err
    assert "role" in told
    assert "validation.select" in told
    assert "not a text" in sql("-e", statement.format("7"), code=2).err


def test_a_primary_key_is_not_learned_from(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        seen.append([each["name"] for each in options["params"]["schema"]["columns"]])
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    done = sql("-e", 'SELECT * FROM main."people" AS p TRAIN a.B INTO m1')
    assert "id: a primary key is not learned from, unless COLUMN names it" in done.err
    done = sql(
        "-e",
        "CREATE MODEL m2 TRANSFORM(*) OPTIONS(model_type='linear_reg', input_label_cols=['wage'])"
        " AS SELECT * FROM people",
    )
    assert "id: a primary key is not learned from, unless COLUMN names it" in done.err
    for number, statement in enumerate(
        (
            "SELECT * FROM people TRAIN a.B COLUMN id, role",
            "SELECT id, wage FROM people TRAIN a.B",
            "SELECT role, wage, id FROM people TRAIN a.B LABEL id",
            "SELECT * FROM (SELECT * FROM people) AS p TRAIN a.B",
        )
    ):
        assert "primary key" not in sql("-e", f"{statement} INTO n{number}").err
    assert seen == [
        ["role", "label"],
        ["role", "label"],
        ["id", "role", "label"],
        ["id", "label"],
        ["role", "wage", "label"],
        ["id", "role", "label"],
    ]


def test_trees_learn_from_all_rows_in_each_epoch(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        seen.update(options)
        seen["requirements"] = (Path(options["model_zoo"]) / "requirements.txt").read_text()
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    statement = "SELECT id, wage FROM people TO TRAIN xgboost.gbtree WITH {} LABEL wage INTO m"
    for wrong, what in (
        ("train.epoch=3", "no num_epochs"),
        ("train.batch_size=3", "no minibatch_size"),
        ("num_boost_round=0", "must be at least 1"),
        ("etta=0.1", "takes no parameter etta"),
        ("hidden_units=[3]", "takes no parameter hidden_units"),
        ("max_depth='deep'", "max_depth is a text"),
    ):
        assert what in sql("-e", statement.format(wrong), code=2).err
    told = "train.num_boost_round=30, train.seed=7, alpha=1"
    Path("edl.toml").write_text('platform = "docker"\nstall-timeout = 900\n')
    sql("-e", statement.format(told))
    assert "stall_timeout" not in seen
    assert seen["model_def"] == "trees.BoostedTreesRegressor"
    expected = {"num_boost_round": 30, "rounds_per_epoch": 1, "seed": 7, "reg_alpha": 1}
    assert seen["params"] | expected == seen["params"]
    rows = seen["params"]["schema"]["rows"]
    assert (seen["num_epochs"], seen["minibatch_size"]) == (30, rows)
    assert (seen["records_per_task"], seen["local_steps"]) == (rows, 2)
    assert "xgboost-cpu" in seen["requirements"]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "SELECT id, role FROM people TRAIN xgboost.gbtree INTO m",
            "label role is a text; trees.BoostedTreesRegressor learns numbers\n",
        ),
        (
            "SELECT id, wage FROM people TRAIN BoostedTreesClassifier INTO m",
            "wage is not a class: its type is",
        ),
        (
            "SELECT wage, id FROM people TRAIN DNNClassifier WITH n_classes=2 INTO m",
            "the label id has classes up to number 2, counted from 0; with n_classes=2",
        ),
        (
            "SELECT id, role FROM people TRAIN BoostedTreesClassifier WITH n_classes=1 INTO m",
            "the label role has classes up to number 1",
        ),
        (
            "SELECT role, CAST(wage AS TEXT) AS pay FROM people TRAIN DNNRegressor INTO m",
            "Its texts are numbers: write CAST(pay AS FLOAT) AS pay in the SELECT.",
        ),
        ("SELECT wage, 'x' AS y FROM people TRAIN DNNClassifier INTO m", "y is x in all rows"),
        ("SELECT wage, 7 AS y FROM people TRAIN DNNClassifier INTO m", "y is 7 in all rows"),
        (
            "SELECT * FROM people TRAIN DNNRegressor COLUMN BUCKET(role, [1, 2]) INTO m",
            "BUCKET is of numbers, and role is a text\n  where: line 1, column 55",
        ),
        (
            "SELECT * FROM people TRAIN DNNRegressor COLUMN INDICATOR(wage) LABEL id INTO m",
            "INDICATOR is of categories, and wage is a number",
        ),
        (
            "SELECT * FROM people TRAIN DNNRegressor COLUMN BUCKET(wage, [1, 2]), role INTO m",
            "wage is the label: a model cannot learn from it, too",
        ),
        (
            "CREATE MODEL m TRANSFORM(* EXCEPT(id, roles)) OPTIONS(model_type='linear_reg',"
            " input_label_cols=['wage']) AS SELECT * FROM people",
            "no column roles in the SELECT\n  where: line 1, column 39",
        ),
    ],
)
def test_labels_and_columns_that_do_not_fit(
    sql: Call, statement: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a job needs XGBoost; the environment of these tests lacks it.
    monkeypatch.setattr("edl_sql.rounds.find_spec", lambda name: name)
    assert words in sql("-e", statement, code=2).err


def test_numbers_that_are_texts_are_told(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        return JobResult("job", "SUCCEEDED", metrics={})

    monkeypatch.setattr("edl.api.train", train)
    columns = "CAST(wage AS TEXT) AS pay, CAST(id AS TEXT) AS number, role, '1' AS one, wage"
    told = sql("-e", f"SELECT {columns} FROM people TRAIN DNNRegressor INTO m").err
    assert "pay, number: texts, of which each number is a word by itself" in told
    assert "CAST(pay AS FLOAT) AS pay in the SELECT" in told


def test_what_a_model_refuses_in_a_job_is_a_mistake_of_the_statement() -> None:
    text = "SELECT a TRAIN trees.BoostedTreesRegressor WITH eta=1, max_depth=50 INTO m"
    (statement,) = parse_statements(text)
    assert isinstance(statement, Train)
    told = "DNN(max_depth, eta) raised ValueError: max_depth is 50; trees have 1 to 10 levels"
    for zoo, expected in ((str(OWN_ZOO), told.partition("Error: ")[2]), ("model_zoo", told)):
        with pytest.raises(EdlError) as caught, restate_refusals(statement, zoo):
            raise EdlError(ErrorCode.MODEL_CONTRACT, told, where="a.py:7", detail="Traceback")
        assert caught.value.what == expected
        is_own = zoo != "model_zoo"
        assert caught.value.where.startswith("line 1, column 56" if is_own else "a.py:7")
        assert bool(caught.value.detail) is not is_own


def test_trees_without_xgboost_are_refused_before_rows_are_read(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_missing(name: str) -> None:
        assert name == "xgboost"

    monkeypatch.setattr("edl_sql.rounds.find_spec", is_missing)
    statement = "SELECT * FROM none TRAIN BoostedTreesRegressor INTO m"
    failed = sql("-e", statement, code=2).err
    assert "XGBoost, which is not installed here\n  where: line 1, column 26" in failed
    assert "pip install 'edl-sql[trees]'" in failed
    assert "no such table" in sql("-e", statement, "--platform", "docker", code=3).err


def test_large_tables_are_read_less_often() -> None:
    def plan(rows: int, columns: int = 5, **options: Any) -> dict[str, Any]:
        schema = {"rows": rows, "columns": [{}] * columns}
        return plan_rounds(schema, params, options, "zoo", Path())

    params: dict[str, Any] = {"num_boost_round": 50}
    settings = plan(1_000_000)
    assert (settings["num_epochs"], params["rounds_per_epoch"]) == (2, 25)
    assert settings["stall_timeout"] == plan(1_000_000, 20)["stall_timeout"] == 2000
    assert plan(1_000_000, 200)["stall_timeout"] == 20_000
    assert "stall_timeout" not in plan(1_000_000, stall_timeout="9m")
    params = {}
    assert (plan(60_000)["num_epochs"], plan(60_000)["stall_timeout"]) == (34, 120)
    assert params == {"num_boost_round": 100, "rounds_per_epoch": 3}


@pytest.mark.parametrize("said", [{}, {"num_boost_round": 30}, {"early_stopping_rounds": 5}])
def test_rows_choose_the_rounds_unless_the_statement_does(said: dict[str, int]) -> None:
    params = dict(said)
    planned = plan_rounds({"rows": 90, "columns": [{}]}, params, {}, "zoo", Path())
    told = describe_epochs(params, planned["num_epochs"], in_rounds=True)
    if said:
        rounds = said.get("num_boost_round", 100)
        assert params == {**said, "num_boost_round": rounds, "rounds_per_epoch": 1}
        assert (told, planned["stall_timeout"]) == (f"{rounds} epochs", 60)
    else:
        assert params == {"rounds_per_epoch": 2}
        assert (planned["num_epochs"], planned["stall_timeout"]) == (100, 300)
        assert "at most 100 epochs: the first one holds out rows to choose" in told
    assert describe_epochs({}, 3, in_rounds=False) == "3 epochs"


def test_the_plan_of_trees_that_choose_is_that_of_the_model_file() -> None:
    """Neither can import the other: the model file is a copy beside the trained model."""
    text = (OWN_ZOO / "tree_choice.py").read_text()
    assert f"MAX_ROUNDS = {rounds._MAX_ROUNDS}\n" in text
    assert f"_MAX_ROWS = 50, {rounds._MAX_ROWS:_}\n" in text
