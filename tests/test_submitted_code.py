"""The code that was submitted is what trains, whatever becomes of the files meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Edl, HeldTraining, eventually
from counting import check, event_kinds, records_trained, train
from safetensors.numpy import load_file

TOTAL, EPOCHS = 203, 20  # a held worker takes minutes, and the tests act within seconds
DOUBLE = ("learning_rate=1.0", "learning_rate=2.0")


class Job:
    """A running job of the counting model in one worker, which is held."""

    def __init__(self, edl: Edl, held: HeldTraining, data: Path, output: Path) -> None:
        self.edl, self.held, self.output = edl, held, output
        self.file = held.zoo / "counting.py"
        self.submitted = self.file.read_text()
        given = train(data, TOTAL, output, "--name", "job", epochs=EPOCHS, held=held)
        edl(*given, "--detach")
        self.await_training()
        self.code = edl.status("job")["settings"]["model.code"]

    def await_training(self) -> None:
        before = records_trained(self.edl, "job")
        eventually(lambda: records_trained(self.edl, "job") > before, "it trains")

    def edit(self) -> None:
        """Let each record count twice, in every process that reads the file from now on."""
        self.file.write_text(self.submitted.replace(*DOUBLE))

    def finish(self, *command: str) -> None:
        self.held.release()
        self.edl(*command)
        assert self.edl.status("job")["state"] == "SUCCEEDED"


@pytest.fixture
def job(edl: Edl, held: HeldTraining, tmp_path: Path, numbered: Callable[..., Path]) -> Job:
    return Job(edl, held, numbered(TOTAL), tmp_path / "model")


def test_later_processes_and_the_output_have_the_submitted_code(job: Job) -> None:
    """Edited while one worker trains; then one is added, one killed, the master, too."""
    job.edit()
    job.edl("scale", "job", "--workers", "2")
    eventually(lambda: len(job.edl.workers("job")) == 2, "a second worker")
    os.kill(job.edl.workers("job")[0], signal.SIGKILL)
    job.await_training()
    master = json.loads((job.edl.job_dir("job") / "master.json").read_text())
    os.kill(master["pid"], signal.SIGKILL)
    job.await_training()
    job.finish("wait", "job")
    check(job.output, TOTAL, EPOCHS)
    assert (job.output / "model_zoo" / "counting.py").read_text() == job.submitted
    assert job.code.encode() in (job.output / "trained_model.pb").read_bytes()
    assert re.search(f"code +sha256 {job.code}", job.edl("status", "job").out)
    assert (job.edl.job_dir("job").stat().st_mode & 0o077) == 0, "the copy is private"


def test_changed_code_is_refused_by_name_until_a_person_chooses(job: Job) -> None:
    edl = job.edl
    edl("stop", "job")
    job.edit()
    (job.held.zoo / "README").write_text("no code")
    refused = edl.run("resume", "job")
    assert refused.code == 2, str(refused)
    assert "changed counting.py\n" in refused.err
    assert "edl resume job --code job" in refused.err
    assert "edl resume job --code new" in refused.err
    assert edl.status("job")["state"] == "CANCELLED"
    edl("resume", "job", "--code", "job", "--detach")
    job.await_training()
    edl("stop", "job")
    job.file.write_text(job.submitted)
    edl("resume", "job", "--detach")
    job.finish("wait", "job")
    check(job.output, TOTAL, EPOCHS)
    assert "CodeReplaced" not in event_kinds(edl, "job")


def test_new_code_is_taken_when_a_person_says_so(job: Job) -> None:
    edl = job.edl
    edl("stop", "job")
    job.edit()
    edl("resume", "job", "--code", "new", "--detach")
    job.await_training()
    edl("stop", "job")
    job.finish("resume", "job")
    assert event_kinds(edl, "job").count("CodeReplaced") == 1
    assert "changed counting.py" in edl("events", "job").out
    assert edl.status("job")["settings"]["model.code"] != job.code
    (weights,) = load_file(job.output / "parameters.safetensors").values()
    assert set(np.unique(weights)) <= set(range(EPOCHS, 2 * EPOCHS + 1))
    assert weights.max() > EPOCHS, "what was trained after the change counts twice"
    assert DOUBLE[1] in (job.output / "model_zoo" / "counting.py").read_text()
    assert len(list((edl.job_dir("job") / "code").iterdir())) == 1
