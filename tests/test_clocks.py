"""The clock of the machine jumps by years while a job runs, and nothing is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Edl, HeldTraining, eventually
from counting import check, event_kinds, records_trained, train

from edl_testing.requirements import require_program

TOTAL, EPOCHS = 1203, 3


WEEK_S = 7 * 86400
TEN_YEARS_S = 3652 * 86400


class Clock:
    """The wall clock of all processes of a home; their monotonic clocks stay as they are."""

    def __init__(self, edl: Edl, place: Path) -> None:
        compiler = require_program("cc", "gcc")
        library, self._file = place / "shifted_clock.so", place / "clock"
        source = Path(__file__).with_name("shifted_clock.c")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        self.shift(0)
        edl.env |= {"LD_PRELOAD": str(library), "EDL_TEST_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Set the clock to the true time plus so many seconds."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file)


@pytest.fixture
def clock(edl: Edl, tmp_path: Path) -> Clock:
    return Clock(edl, tmp_path)


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
