"""The statements of ``docs/sql-statements.md`` get the answers that stand there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from edl.core.problem import Problem
from edl_proto.errors import EdlError
from edl_sql.language.parser import parse_statements
from edl_sql.language.statements import Train
from edl_sql.language.tokens import Dialect
from edl_sql.statement_checks import check_metrics, check_parameters, with_keras_names
from edl_sql.zoos import find_model

DOCS = Path(__file__).parents[3] / "docs" / "sql-statements.md"
ROWS = [
    (statement.strip("` ").replace("\\|", "|") + ";", answer.replace("\\|", "|"))
    for statement, answer in re.findall(r"^\| (`.*`) \| (.*) \|$", DOCS.read_text(), re.M)
]


def answer_to(text: str) -> str:
    """Return what edl says to a statement before it looks at the database."""
    try:
        for statement in parse_statements(text, Dialect.MYSQL):
            if isinstance(statement, Train):
                check(statement)
    except (Problem, EdlError) as error:
        return f"refused: {error.what}. {error.remedy}"
    return "works"


def check(statement: Train) -> None:
    """Check the model and its parameters, as ``edl_sql.train_statement`` does first."""
    found = find_model(statement.model_def, statement.params, "")
    params = dict(found.params)
    if not statement.settings.keys() & {"optimizer", "loss"}:
        check_parameters(
            replace(statement, model_def=found.model_def, params=params), Path(found.zoo)
        )
    check_metrics(statement.positions, with_keras_names(statement.settings), found.source)


@pytest.mark.parametrize(("statement", "answer"), ROWS)
def test_the_answer_to_a_documented_statement(statement: str, answer: str) -> None:
    assert answer_to(statement) == re.sub("^works; .*", "works", answer)


def test_the_page_has_all_kinds_of_answers() -> None:
    assert len(ROWS) > 60
    assert {answer.partition(":")[0].partition(";")[0] for _, answer in ROWS} == {
        "works",
        "refused",
    }
