"""A store that gets nowhere is given up; one that is only slow is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.store import Trouble, empty_store, trouble

import recordio
from edl_master.adapters import object_stores, store_calls
from edl_master.adapters.part_files import OutputFormat
from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError, ErrorCode

LONG_S = 200.0


@pytest.fixture
def going_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The event that stuck calls wait for."""
    monkeypatch.setattr(
        store_calls, "TIMEOUTS", store_calls.StoreTimeouts(call_s=0.3, slowest_bytes_per_s=1e9)
    )
    event = threading.Event()
    with empty_store():
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
    assert failed.value.code == ErrorCode.OUTPUT_UNWRITABLE
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
    """Four pieces, each faster than the limit, together slower; after each the limit is checked."""
    now, looks, caller = 0.0, 0, threading.current_thread()

    def clock() -> float:
        nonlocal looks
        looks += threading.current_thread() is caller
        return now

    def piece() -> None:
        nonlocal now
        now += 0.4
        seen, until = looks, time.time() + LONG_S
        while looks < seen + 2 and time.time() < until:
            time.sleep(0.005)

    monkeypatch.setattr(store_calls, "TIMEOUTS", store_calls.StoreTimeouts(call_s=0.5))
    monkeypatch.setattr(store_calls.time, "monotonic", clock)
    trouble("piece ", piece)
    object_stores.put(a_file(tmp_path), "trouble://bucket/out", "j")
    assert now == pytest.approx(1.6)
    assert bytes(Trouble.store["/bucket/out"].getvalue()) == b"content"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pauses between attempts are short."""
    monkeypatch.setattr(store_calls, "_FIRST_PAUSE_S", 0.01)
    with empty_store():
        yield


def fail_at(call: str, error: Exception, times: int) -> None:
    left = [error] * times

    def fail() -> None:
        if left:
            raise left.pop()

    trouble(call, fail)


def a_folder(place: Path) -> Path:
    (place / "zoo").mkdir(parents=True)
    for name in ("weights", "zoo/model.py", "last"):
        (place / name).write_bytes(name.encode())
    return place


WHOLE = {f"/bucket/out/{name}": name.encode() for name in ("weights", "zoo/model.py", "last")}


def stored_files() -> dict[str, bytes]:
    return {path: bytes(file.getvalue()) for path, file in Trouble.store.items()}


@pytest.mark.parametrize("at", ["exists", "piece", "put /bucket/.out", "copy"])
def test_a_store_that_is_out_of_order_costs_an_upload_time(
    patient: None, tmp_path: Path, at: str
) -> None:
    fail_at(at, ConnectionResetError("reset"), 3)
    object_stores.put(a_folder(tmp_path / "m"), "trouble://bucket/out", "j")
    assert stored_files() == WHOLE


@pytest.mark.parametrize("at", ["exists", "copy", "pipe /bucket/out/last"])
def test_a_store_that_is_out_of_order_costs_a_move_time(
    patient: None, tmp_path: Path, at: str
) -> None:
    object_stores.put(a_folder(tmp_path / "m"), "trouble://bucket/part", "j")
    fail_at(at, ConnectionResetError("reset"), 3)
    object_stores.move("trouble://bucket/part", "trouble://bucket/out", "j", "last")
    assert stored_files() == WHOLE


def test_a_store_that_stays_out_of_order_is_an_error(
    patient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_calls, "TIMEOUTS", store_calls.StoreTimeouts(outage_s=0.1))
    fail_at("copy", ConnectionResetError("reset"), 1000)
    with pytest.raises(EdlError, match="reset"):
        object_stores.put(a_file(tmp_path), "trouble://bucket/out", "j")


def test_a_store_that_refuses_is_asked_once(patient: None, tmp_path: Path) -> None:
    fail_at("copy", PermissionError("not today"), 1)
    with pytest.raises(EdlError, match="not today"):
        object_stores.put(a_file(tmp_path), "trouble://bucket/out", "j")
    assert stored_files() == {}


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
    assert failed.value.code == ErrorCode.OUTPUT_UNWRITABLE
    assert (tmp_path / "parts" / "0000000000.recordio").exists()
    assert predictions.is_begun
    assert not predictions.is_joined
