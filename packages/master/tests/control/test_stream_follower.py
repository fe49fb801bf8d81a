"""A job gets what its stream's source discovers, also after that was away for a while."""

from __future__ import annotations

import threading

import pytest
from fakes.job_settings import job_settings

from edl_master.control import stream_follower
from edl_master.control.stream_follower import StreamFollower
from edl_master.core.effects import LogEvent
from edl_master.core.events import StopRequested
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType
from edl_master.core.windows import Split, SplitsDiscovered, WindowRule
from edl_proto.errors import EdlError, ErrorCode


class Job:
    """The job behind the controller's methods that a follower calls."""

    def __init__(self) -> None:
        settings = job_settings(JobType.TRAIN, window=WindowRule(records=10), shuffle=False)
        self.machine = JobStateMachine(settings, ())

    def find_oldest_split(self) -> int | None:
        stream = self.machine.stream
        assert stream is not None
        return None if stream.has_ended else stream.oldest_split

    def count_waiting(self) -> int:
        progress = self.machine.view(0.0).progress
        return progress.records_total - progress.records_done

    def handle(self, event: SplitsDiscovered) -> None:
        self.machine.handle(event, 0.0)


class ScriptedSource:
    """A source that answers as its script says, and ends the following after that."""

    def __init__(self, over: threading.Event, *answers: tuple[Split, ...] | Exception) -> None:
        self._over = over
        self._answers = list(answers)
        self.forgotten = 0
        self.released: list[int] = []

    def discover(self) -> tuple[tuple[Split, ...], list[LogEvent]]:
        if not self._answers:
            self._over.set()
            return (), []
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, []

    def forget(self, before: int) -> None:
        self.forgotten = before

    def compact(self, before: int) -> None:
        self.released.append(before)


def test_splits_reach_the_job_also_after_the_source_was_away() -> None:
    job, over, events = Job(), threading.Event(), list[LogEvent]()
    away = OSError("no route to host")
    unreadable = EdlError(ErrorCode.DATA_UNREADABLE, "the store is away", where="s3://bucket/in")
    source = ScriptedSource(over, (Split(1, "b", 3),), away, unreadable, (Split(2, "c", 4),))
    follower = StreamFollower(source, (Split(0, "a", 5),), job, events.append, poll_s=0.01)
    follower.follow(over)
    assert job.machine.stream is not None
    assert job.machine.stream.records == 12
    assert [event.kind for event in events] == ["StreamAway", "StreamBack"]
    assert "no route to host" in events[0].message
    assert source.forgotten == 0, "the records of the first split have not trained"


def test_a_file_that_cannot_be_used_ends_the_following() -> None:
    damaged = EdlError(ErrorCode.DATA_DAMAGED, "part-7 is damaged", where="part-7")
    job, over = Job(), threading.Event()
    follower = StreamFollower(ScriptedSource(over, damaged), (), job, print, poll_s=0.01)
    with pytest.raises(EdlError, match="part-7 is damaged"):
        follower.follow(over)


def test_a_stream_that_is_told_to_end_is_not_followed_any_more() -> None:
    """A bad file that comes while the job trains the rest cannot fail it."""
    job, over = Job(), threading.Event()
    damaged = EdlError(ErrorCode.DATA_DAMAGED, "part-7 is damaged", where="part-7")
    job.machine.handle(StopRequested("enough"), 0.0)
    follower = StreamFollower(ScriptedSource(over, damaged), (), job, print, poll_s=0.01)
    follower.follow(over)
    assert not over.is_set()


def test_a_source_is_not_asked_while_many_records_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_follower, "MAX_WAITING", 8)
    job, over = Job(), threading.Event()
    source = ScriptedSource(over, (Split(0, "a", 9),), (Split(1, "b", 9),))
    follower = StreamFollower(source, (), job, print, poll_s=0.001)
    threading.Timer(0.1, over.set).start()
    follower.follow(over)
    assert job.count_waiting() == 9


def test_splits_are_released_when_no_snapshot_that_is_kept_needs_them() -> None:
    job, over = Job(), threading.Event()
    source = ScriptedSource(over)
    follower = StreamFollower(source, (), job, print, poll_s=0.001)
    for oldest in range(1, 11):
        follower.note_snapshot(oldest)
    follower.follow(over)
    assert set(source.released) == {3}
