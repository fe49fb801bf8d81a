"""Jobs on files or records that keep arriving train each once, and end when they are told to."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Edl, eventually
from counting import check, event_kinds, records_trained

import recordio
from edl_testing.kafka import KafkaCluster

RECORDS, WINDOW = 600, 250


class Arrivals:
    """A folder in which the files of another one arrive.

    Attributes:
        data: the value of ``--data``.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.data = str(folder)
        self._waiting = sorted(source.iterdir())

    def add(self, files: int) -> None:
        for path in self._waiting[:files]:
            self._move(path)
        del self._waiting[:files]

    def _move(self, path: Path) -> None:
        path.rename(self.folder / path.name)


class Messages(Arrivals):
    """A topic in which the records of the files of a folder arrive."""

    def __init__(self, folder: Path, source: Path) -> None:
        super().__init__(folder, source)
        self._cluster = KafkaCluster()
        self.data = self._cluster.uri("numbers")

    def _move(self, path: Path) -> None:
        file = recordio.open_source(str(path))
        self._cluster.spread("numbers", list(file.read(0, file.count())))


@pytest.fixture
def arrivals(tmp_path: Path, numbered: Callable[..., Path]) -> Arrivals:
    return Arrivals(tmp_path / "arrivals", numbered(RECORDS, files=10))


def count_discovered(edl: Edl, name: str) -> int:
    """Return the number of records of the stream's log."""
    _, *lines = (edl.job_dir(name) / "splits.jsonl").read_text().splitlines()
    return sum(json.loads(line)["records"] for line in lines)


def is_trained(edl: Edl, name: str) -> bool:
    """Whether the job has trained all files that it has discovered, and these are all there are."""
    status = edl.written_status(name)
    discovered = int(status.get("progress", {}).get("records_total", 0))
    return discovered > 0 and records_trained(edl, name) == discovered


@pytest.mark.parametrize(
    ("kind", "strategy"), [(Arrivals, "allreduce"), (Messages, "parameter-server")]
)
def test_each_record_trains_once_though_worker_and_master_die(
    edl: Edl, numbered: Callable[..., Path], tmp_path: Path, kind: type[Arrivals], strategy: str
) -> None:
    name, output = "stream", tmp_path / "model"
    arrivals = kind(tmp_path / "arrivals", numbered(RECORDS, files=10))
    arrivals.add(2)
    edl(
        *("train", "--model-zoo", "model_zoo", "--model-def", "counting"),
        *("--params", f"size={RECORDS}", "--data", arrivals.data, "--window", str(WINDOW)),
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
    eventually(lambda: count_discovered(edl, name) == RECORDS, "all records are discovered")
    assert edl("stop", name).out == "stream succeeded\n"
    check(output, RECORDS, epochs=1)
    kinds = event_kinds(edl, name)
    assert "StreamEnded" in kinds
    assert kinds.count("WindowEnded") >= -(-RECORDS // WINDOW)
    assert "window 3/3" in edl("status", name).out


def test_a_worker_may_start_when_all_files_are_gone_and_the_model_is_released(
    edl: Edl, arrivals: Arrivals, tmp_path: Path
) -> None:
    name, output = "stream", tmp_path / "model"
    arrivals.add(5)
    edl(
        *("train", "--model-zoo", "model_zoo", "--model-def", "counting"),
        *("--params", f"size={RECORDS}", "--data", arrivals.data, "--window", str(WINDOW)),
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
    releases = tmp_path / "releases"
    releaser = edl.start("release", name, "--to", str(releases), "--every", "1s")
    eventually((releases / "1").is_dir, "the model of the running job is released")
    assert edl("stop", name).out == "stream succeeded\n"
    assert releaser.wait(60) == 0
    last = max(releases.iterdir(), key=lambda place: int(place.name))
    assert last.name != "1"
    for place in (output, last):
        check(place, RECORDS, epochs=1)
