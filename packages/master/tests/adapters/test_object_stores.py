"""A store that gets nowhere is given up; one that is only slow is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.store import Trouble, emptied, trouble

import recordio
from edl_master.adapters import object_stores, store_calls
from edl_master.adapters.part_files import OutputFormat
from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

LONG_S = 200.0


@pytest.fixture
def going_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What stuck calls wait for."""
    monkeypatch.setattr(
        store_calls, "TIMEOUTS", store_calls.StoreTimeouts(call_s=0.3, slowest_bytes_per_s=1e9)
    )
    event = threading.Event()
    with emptied():
        yield event
        event.set()


def stick_at(call: str, until: threading.Event) -> None:
    trouble(f"{call} ", lambda: until.wait(LONG_S))


def a_file(place: Path) -> Path:
    path = place / "all.recordio"
    path.write_bytes(b"content")
    return path


@pytest.mark.parametrize("where", ["exists", "piece", "copy"])
def test_a_store_that_never_answers_is_given_up(
    going_on: threading.Event, tmp_path: Path, where: str
) -> None:
    stick_at(where, going_on)
    with pytest.raises(EdlError) as failed:
        object_stores.put(a_file(tmp_path), "trouble://bucket/out", "j")
    assert failed.value.code == error_pb2.OUTPUT_UNWRITABLE
    assert "made no progress" in failed.value.what


@pytest.mark.parametrize("where", ["exists", "piece"])
def test_what_was_given_up_changes_nothing_when_the_store_comes_back(
    going_on: threading.Event, tmp_path: Path, where: str
) -> None:
    stick_at(where, going_on)
    with pytest.raises(EdlError):
        object_stores.put(a_file(tmp_path), "trouble://bucket/out", "j")
    going_on.set()
    for thread in threading.enumerate():
        if thread.name == "store":
            thread.join(LONG_S)
    assert Trouble.store == {}


def test_a_slow_store_has_all_the_time_that_it_needs(
    going_on: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four pieces, each faster than the limit, together slower."""
    monkeypatch.setattr(store_calls, "TIMEOUTS", store_calls.StoreTimeouts(call_s=5.0))
    trouble("piece ", lambda: time.sleep(1.5))
    started = time.monotonic()
    object_stores.put(a_file(tmp_path), "trouble://bucket/out", "j")
    assert time.monotonic() - started > 5.0
    assert bytes(Trouble.store["/bucket/out"].getvalue()) == b"content"


def test_predictions_whose_store_gets_stuck_fail_the_job_and_keep_their_parts(
    going_on: threading.Event, tmp_path: Path
) -> None:
    """The job is told, so it does not stay at finishing for ever."""
    predictions = PredictionOutput(
        tmp_path / "parts",
        "job",
        "trouble://b/out",
        ["d"],
        TaskPartition((2,), 2),
        "ab12",
        OutputFormat(),
    )
    stick_at("piece", going_on)
    predictions.prepare()
    with recordio.Writer(str(tmp_path / "parts" / "0000000000.recordio")) as writer:
        writer.write(b"a")
        writer.write(b"b")
    with pytest.raises(EdlError) as failed:
        predictions.finish()
    assert failed.value.code == error_pb2.OUTPUT_UNWRITABLE
    assert (tmp_path / "parts" / "0000000000.recordio").exists()
    assert predictions.is_begun
    assert not predictions.is_joined
