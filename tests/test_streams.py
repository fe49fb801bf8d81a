"""Jobs on files that keep arriving train each record once, and end when they are told to."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Edl, eventually
from counting import check, event_kinds, records_trained

RECORDS, WINDOW = 600, 250


class Arrivals:
    """A folder in which the files of another one arrive."""

    def __init__(self, folder: Path, source: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._waiting = sorted(source.iterdir())

    def add(self, files: int) -> None:
        for path in self._waiting[:files]:
            path.rename(self.folder / path.name)
        del self._waiting[:files]


@pytest.fixture
def arrivals(tmp_path: Path, numbered: Callable[..., Path]) -> Arrivals:
    return Arrivals(tmp_path / "arrivals", numbered(RECORDS, files=10))


def is_trained(edl: Edl, name: str) -> bool:
    """Whether the job has trained all files that it has discovered, and these are all there are."""
    status = edl.written_status(name)
    discovered = int(status.get("progress", {}).get("records_total", 0))
    return discovered > 0 and records_trained(edl, name) == discovered


@pytest.mark.parametrize("strategy", ["allreduce", "parameter-server"])
def test_each_record_trains_once_though_worker_and_master_die(
    edl: Edl, arrivals: Arrivals, tmp_path: Path, strategy: str
) -> None:
    name, output = "stream", tmp_path / "model"
    arrivals.add(2)
    edl(
        *("train", "--model-zoo", "model_zoo", "--model-def", "counting"),
        *("--params", f"size={RECORDS}", "--data", str(arrivals.folder), "--window", str(WINDOW)),
        *("--minibatch-size", "16", "--strategy", strategy, "--num-workers", "2"),
        *("--output", str(output), "--name", name, "--detach"),
    )
    eventually(lambda: is_trained(edl, name), "the first files are trained")
    arrivals.add(2)
    os.kill(edl.workers(name)[0], signal.SIGKILL)
    arrivals.add(2)
    trained = records_trained(edl, name)
    eventually(lambda: records_trained(edl, name) > trained, "training continues")
    master = json.loads((edl.job_dir(name) / "master.json").read_bytes())
    arrivals.add(2)
    os.kill(master["pid"], signal.SIGKILL)
    arrivals.add(2)
    found = edl.job_dir(name) / "splits.jsonl"
    eventually(lambda: len(found.read_text().splitlines()) == 11, "all files are discovered")
    assert edl("stop", name).out == "stream succeeded\n"
    check(output, RECORDS, epochs=1)
    kinds = event_kinds(edl, name)
    assert "StreamEnded" in kinds
    assert kinds.count("WindowEnded") >= -(-RECORDS // WINDOW)
    assert "window 3/3" in edl("status", name).out


def test_a_worker_may_start_when_all_files_have_trained_and_are_gone(
    edl: Edl, arrivals: Arrivals, tmp_path: Path
) -> None:
    name, output = "stream", tmp_path / "model"
    arrivals.add(5)
    edl(
        *("train", "--model-zoo", "model_zoo", "--model-def", "counting"),
        *("--params", f"size={RECORDS}", "--data", str(arrivals.folder), "--window", str(WINDOW)),
        *("--minibatch-size", "16", "--strategy", "parameter-server"),
        *("--output", str(output), "--name", name, "--detach"),
    )
    eventually(lambda: is_trained(edl, name), "the first files are trained")
    for path in arrivals.folder.iterdir():
        path.unlink()
    os.kill(edl.workers(name)[0], signal.SIGKILL)
    eventually(lambda: event_kinds(edl, name).count("WorkerReady") == 2, "a worker has replaced it")
    arrivals.add(5)
    eventually(lambda: records_trained(edl, name) == RECORDS, "all files are trained")
    assert edl("stop", name).out == "stream succeeded\n"
    check(output, RECORDS, epochs=1)
