"""``CREATE MODEL`` of BigQuery means TRAIN."""

from __future__ import annotations

import pytest

from edl.core.problem import Problem
from edl_sql.language.parser import parse_statements
from edl_sql.language.statements import Train


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


@pytest.mark.parametrize(
    ("text", "what", "remedy", "marked"),
    [
        ("CREATE TABLE t AS SELECT 1", "only CREATE MODEL", "OPTIONS", "TABLE"),
        ("CREATE OR REPLACE MODEL m", "replaces no model", "DROP MODEL", "OR"),
        ("CREATE MODEL m TRANSFORM(a)", "support TRANSFORM", "in the SELECT", "TRANSFORM"),
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
