"""``CREATE OR REPLACE MODEL``: a model can be used until its successor is trained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sql_command import TRAIN_M, Call, Killed, caller, prepare_folder, write_model

from edl.adapters import trained_models
from edl.core.job_result import JobResult
from edl_proto.errors import EdlError, ErrorCode


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command with statements for a table of people and a model of them."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()
    return caller(capsys)


REPLACE_M = (
    "CREATE OR REPLACE MODEL m OPTIONS(model_type='linear_reg', input_label_cols=['wage']) AS"
    " SELECT role, wage FROM people"
)


def prepare_replacement(sql: Call, monkeypatch: pytest.MonkeyPatch, ends: str) -> list[str]:
    """Train m, and let the statement that replaces it end in some way; return its job."""
    jobs: list[str] = []

    def train(*, name: str, output: str, **_: Any) -> JobResult:
        if "models/m" not in output:
            assert sql("-e", "SHOW TRAIN m").out == f"{TRAIN_M}\n", "the old one can be used"
        if ends == "fails" and jobs:
            raise EdlError(ErrorCode.USER_CODE, "no", where="", remedy="")
        write_model(output, name)
        jobs.append(name)
        if ends == "is killed" and len(jobs) == 2:
            raise Killed
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    sql("-e", TRAIN_M)
    return jobs


def test_a_model_is_replaced_when_its_successor_is_trained(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = prepare_replacement(sql, monkeypatch, "succeeds")
    sql("-e", REPLACE_M)
    assert sql("-e", "SHOW TRAIN m").out == f"{REPLACE_M}\n"
    assert trained_models.read("models/m").job == jobs[1]
    assert [name for name in os.listdir("models") if ".m" in name] == []
    kept = sql("-e", REPLACE_M.replace("OR REPLACE MODEL", "MODEL IF NOT EXISTS"))
    assert "there is a model m already: it stays" in kept.err
    assert len(jobs) == 2


def test_a_model_stays_if_its_successor_fails(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = prepare_replacement(sql, monkeypatch, "fails")
    sql("-e", REPLACE_M, code=4)
    assert trained_models.read("models/m").job == first
    assert [name for name in os.listdir("models") if ".m" in name] == []


@pytest.mark.parametrize("renamed", [False, True], ids=["before", "while the old one is away"])
def test_a_killed_replacement_is_finished_by_the_next_statement(
    sql: Call, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    jobs = prepare_replacement(sql, monkeypatch, "is killed")
    with pytest.raises(Killed):
        sql("-e", REPLACE_M)
    assert trained_models.read("models/m").job == jobs[0]
    if renamed:
        Path("models/m").rename("models/.m.123.dropped")
    assert sql("-e", "SHOW TRAIN m").out == f"{REPLACE_M}\n"
    assert trained_models.read("models/m").job == jobs[1]


def test_what_is_not_replaced(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl_convert.api.convert_data", None)
    Path("models/m").mkdir()
    assert "no statement has trained a model m here" in sql("-e", REPLACE_M, code=4).err
    fsspec.filesystem("memory").pipe(
        "/bucket/models/m/statement.json", Path("models/wages/statement.json").read_bytes()
    )
    refused = sql("--models", "memory://bucket/models", "-e", REPLACE_M, code=2).err
    assert "a store cannot exchange models" in refused
    fsspec.filesystem("memory").rm("/bucket", recursive=True)
