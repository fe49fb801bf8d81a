"""The clock of the machine jumps by years while a job runs, and nothing is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import ROOT, Edl, HeldTraining, eventually
from counting import check, event_kinds, records_trained, train

from edl_testing import fork_server
from edl_testing.requirements import require_program

sys.path.insert(0, str(ROOT / "tools"))

from chaos.clock import TEN_YEARS_S, WEEK_S, Clock

TOTAL, EPOCHS = 1203, 3


@pytest.fixture
def clock(edl: Edl, tmp_path: Path) -> Iterator[Clock]:
    """The clock of a job's processes: forks of one that has started with it."""
    require_program("cc", "gcc")
    found = Clock(tmp_path)
    edl.env |= found.environ
    with ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in found.environ.items():
                patch.setenv(name, value)
            forking = fork_server.forking_python(
                (fork_server.WORKER, fork_server.MASTER),
                (*fork_server.WORKER_IMPORTS, *fork_server.MASTER_IMPORTS),
            )
            edl.env["EDL_PYTHON"] = opened.enter_context(forking)
        yield found


def kill_worker(edl: Edl, name: str) -> None:
    before = event_kinds(edl, name).count("WorkerReady")
    os.kill(next(iter(edl.workers(name).values())), signal.SIGKILL)
    eventually(lambda: event_kinds(edl, name).count("WorkerReady") > before, "another worker")


def kill_master(edl: Edl, name: str) -> None:
    facts = edl.job_dir(name) / "master.json"
    first = json.loads(facts.read_bytes())
    os.kill(first["pid"], signal.SIGKILL)
    eventually(
        lambda: json.loads(facts.read_bytes())["incarnation"] != first["incarnation"],
        "another master",
    )


def test_a_clock_that_is_set_while_a_job_runs_costs_nothing(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining, clock: Clock
) -> None:
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "c", "--detach"),
    )
    eventually(lambda: list((edl.job_dir("c") / "snapshots").glob("c-*")), "a snapshot")
    eventually(lambda: records_trained(edl, "c") > 20, "some training")
    clock.shift(TEN_YEARS_S)
    kill_worker(edl, "c")
    kill_master(edl, "c")
    edl("stop", "c")
    clock.shift(-TEN_YEARS_S)
    edl("resume", "c", "--detach")
    kill_worker(edl, "c")
    clock.shift(WEEK_S)
    kill_worker(edl, "c")
    held.release()
    edl("wait", "c")
    status = edl.status("c")
    assert status["state"] == "SUCCEEDED"
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
