"""The record of what workers did: its lines, its files and their size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edl_master.adapters.timeline_file import TimelineFile
from edl_master.adapters.timeline_json import timeline_json
from edl_master.core.identifiers import InstanceId, TaskKey, TaskType, Token, WorkerId
from edl_master.core.timeline import SpanOutcome
from edl_master.reporting import timeline_recorder
from edl_master.reporting.timeline_recorder import TimelineRecorder
from edl_runtime.local import job_directory

W0, FIRST, TASK = WorkerId(0), InstanceId("first"), TaskKey(TaskType.TRAINING, 1, 3)


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lines_of(file: TimelineFile, nbytes: int = 256 << 10) -> list[str]:
    return b"".join(file.chunks(nbytes)).decode().splitlines()


def work(recorder: TimelineRecorder, clock: Clock, seconds: float = 1.5) -> None:
    recorder.record_lease(W0, FIRST, TASK, Token(1))
    clock.now += seconds
    recorder.record_end(W0, TASK, Token(1), SpanOutcome.DONE)


def test_a_line_says_who_did_what_when(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000.0)
    recorder = TimelineRecorder(TimelineFile(tmp_path), clock)
    work(recorder, clock)
    seconds = 'edl_worker_step_duration_seconds_sum{phase="%s"}'
    recorder.record_heartbeat(W0, FIRST, "computing", {seconds % "compute": 7.0})
    clock.now += 1.0
    recorder.record_heartbeat(
        W0, FIRST, "computing", {seconds % "compute": 7.5, seconds % "exchange": 0.25, "other": 9.0}
    )
    recorder.flush()
    lines = (tmp_path / job_directory.TIMELINE).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "at": 1_700_000_000.0,
            "seconds": 1.5,
            "worker": 0,
            "task": "training/1/3",
            "outcome": "done",
        },
        {
            "at": 1_700_000_001.5,
            "seconds": 1.0,
            "worker": 0,
            "phases": {"compute": 0.5, "exchange": 0.25, "other": 0.25},
        },
    ]


@pytest.mark.parametrize("made_up", [1e308, 1e12, float("inf"), float("nan")])
def test_counters_that_a_worker_makes_up_stop_neither_the_record_nor_the_page(
    tmp_path: Path, made_up: float
) -> None:
    """An error here would end the job: a worker must not do that by itself."""
    clock = Clock(0.0)
    recorder = TimelineRecorder(TimelineFile(tmp_path), clock)
    series = 'edl_worker_step_duration_seconds_sum{phase="compute"}'
    for beat in range(8):
        recorder.record_heartbeat(W0, FIRST, "computing", {series: made_up if beat % 2 else 0.0})
        clock.now += 1.5
    recorder.flush()
    (worker,) = json.loads(timeline_json(recorder.times()))["workers"]
    assert sum(worker["seconds"]) == 10.5
    assert all(sum(shares) <= 100 for shares in worker["percent"])


def test_what_goes_on_is_read_at_last_and_written_at_the_end(tmp_path: Path) -> None:
    clock, file = Clock(0.0), TimelineFile(tmp_path)
    recorder = TimelineRecorder(file, clock)
    work(recorder, clock)
    recorder.record_lease(W0, FIRST, TASK, Token(2))
    clock.now += 1.0
    read = b"".join(recorder.chunks()).decode().splitlines()
    assert [json.loads(line)["outcome"] for line in read] == ["done", "unfinished"]
    assert len(lines_of(file)) == 1
    recorder.close()
    assert [json.loads(line)["outcome"] for line in lines_of(file)] == ["done", "unfinished"]


def test_the_next_master_goes_on_with_the_file_of_a_killed_one(tmp_path: Path) -> None:
    clock, file = Clock(0.0), TimelineFile(tmp_path)
    file.append('{"first": 1}\n{"to')
    recorder = TimelineRecorder(TimelineFile(tmp_path), clock)
    work(recorder, clock)
    recorder.flush()
    first, torn, last = lines_of(file)
    assert (first, torn) == ('{"first": 1}', '{"to')
    assert json.loads(last)["outcome"] == "done"


def test_the_files_are_bounded_and_keep_the_latest_lines(tmp_path: Path) -> None:
    file = TimelineFile(tmp_path, max_nbytes=1000)
    for number in range(500):
        file.append(f"line {number}\n")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert max(sizes) < 1010
    found = lines_of(file, nbytes=64)
    assert found == [f"line {number}" for number in range(500 - len(found), 500)]
    assert len(found) >= 100


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    file = TimelineFile(tmp_path)
    file.append("whole\nto")
    assert b"".join(file.chunks(4)) == b"whole\n"
    assert lines_of(TimelineFile(tmp_path / "nowhere")) == []


def test_a_disk_that_takes_nothing_costs_lines_and_not_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, folder = Clock(0.0), tmp_path / "job"
    recorder = TimelineRecorder(TimelineFile(folder), clock)
    for _ in range(2):
        work(recorder, clock)
        recorder.flush()
    warned = [each for each in caplog.records if each.name == timeline_recorder.__name__]
    assert len(warned) == 1
    folder.mkdir()
    work(recorder, clock)
    recorder.flush()
    assert len(lines_of(TimelineFile(folder))) == 1


def test_the_times_are_those_of_all_masters_of_the_job(tmp_path: Path) -> None:
    def master(began: float, seconds: float) -> TimelineRecorder:
        clock = Clock(began)
        recorder = TimelineRecorder(TimelineFile(tmp_path), clock)
        work(recorder, clock, 0.5)
        recorder.record_heartbeat(W0, FIRST, "idle", {})
        clock.now += seconds
        recorder.record_heartbeat(W0, FIRST, "idle", {})
        recorder.close()
        return recorder

    def read_times(recorder: TimelineRecorder) -> tuple[float, int]:
        (times,) = recorder.times().workers
        return times.seconds["idle"], times.tasks[SpanOutcome.DONE]

    first = master(1000.0, 3.0)
    assert read_times(first) == (3.0, 1), "its own lines are not read again"
    second = master(1010.0, 4.0)
    assert read_times(second) == (7.0, 2)
    assert read_times(second) == (7.0, 2), "earlier lines count once"
