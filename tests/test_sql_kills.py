"""``edl sql`` is killed while a job of its statement runs: nothing is lost, and nothing twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest
from conftest import ROOT, Edl, eventually

pytestmark = pytest.mark.own_start

ROWS = 60
TRAIN = "SELECT name, role, salary FROM employee TRAIN regressor.DNN WITH train.epoch=1 INTO m"
PREDICT = "SELECT id, name, role FROM testdata PREDICT testdata.predicted_salary USING m"


def query(database: Path, *statements: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def kill_while_a_job_runs(edl: Edl, *args: str) -> str:
    """The job, which has just been started."""
    jobs = edl.home / "jobs"
    before = set(jobs.glob("*"))
    with edl.start(*args) as running:
        (started,) = eventually(
            lambda: [job for job in set(jobs.glob("*")) - before if edl.workers(job.name)],
            "its job has a worker",
            every=0.02,
        )
        running.kill()
    assert isinstance(running, subprocess.Popen)
    return str(started.name)


def test_the_model_of_a_killed_statement_is_used_and_a_killed_prediction_repeated(
    edl: Edl, tmp_path: Path
) -> None:
    database = tmp_path / "my.db"
    people = ", ".join(f"({n}, 'p{n}', '{'boss' if n % 3 else 'clerk'}')" for n in range(ROWS))
    query(
        database,
        "CREATE TABLE testdata (id INTEGER PRIMARY KEY, name TEXT, role TEXT)",
        f"INSERT INTO testdata VALUES {people}",
        "CREATE TABLE employee AS SELECT name, role, 100.0 * id AS salary FROM testdata",
    )
    common = ("sql", "--db", f"sqlite:///{database}", "--models", str(tmp_path / "models"))
    common = (*common, "--model-zoo", str(ROOT / "model_zoo"))
    job = kill_while_a_job_runs(edl, *common, "-e", TRAIN)
    # While its worker stands still, the job cannot end.
    workers = edl.workers(job).values()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    done = edl.run(*common, "-e", TRAIN)
    assert done.code == 2, str(done)
    assert f"the job {job} is training a model m" in done.err
    assert f"edl status {job}" in edl.run(*common, "-e", "SHOW TRAIN m").err
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    edl("wait", job)
    assert edl(*common, "-e", "SHOW TRAIN m").out == f"{TRAIN}\n"

    first = kill_while_a_job_runs(edl, *common, "-e", PREDICT)
    edl("stop", first, "--now")
    edl(*common, "-e", PREDICT)
    rows = query(database, "SELECT COUNT(*), COUNT(predicted_salary) FROM testdata")
    assert rows == [(ROWS, ROWS)]
    assert not list((tmp_path / "models").glob(".m.*")), "what was written beside it"
