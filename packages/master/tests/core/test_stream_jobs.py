"""A training job on a stream: windows in place of epochs, and each record once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from fakes.job_settings import job_settings
from hypothesis import given
from hypothesis import strategies as st
from joined_job import INSTANCE, WORKER, join_worker

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import ParameterCounts, Version
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.windows import Split, SplitsDiscovered, WindowRule

Place = tuple[int, int]


def stream_settings(rule: WindowRule, **chosen: object) -> JobSettings:
    fixed = {"records_per_task": 4, "minibatch_size": 2, "export": False, "shuffle": False}
    return job_settings(JobType.TRAIN, window=rule, **{**fixed, **chosen})


class Player:
    """A worker that trains what it gets, and counts the records."""

    def __init__(self, job: JobStateMachine, trained: Iterable[Place] = ()) -> None:
        self.job = join_worker(job)
        self.trained: Counter[Place] = Counter(trained)
        self.events: list[fx.LogEvent] = []
        self.version = 0

    def handle(self, event: ev.Event, now: float = 0.0) -> list[fx.Effect]:
        effects = self.job.handle(event, now)
        self.events += [effect for effect in effects if isinstance(effect, fx.LogEvent)]
        self.job.check_invariants()
        return effects

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def discover(self, *records: int, first: int = 0, now: float = 0.0) -> None:
        splits = tuple(Split(first + n, f"file-{first + n}", r) for n, r in enumerate(records))
        self.handle(SplitsDiscovered(splits), now)

    def train(self, tasks: int = 1000, now: float = 0.0) -> int:
        """Train up to so many tasks; return how many there were."""
        for done in range(tasks):
            effects = self.handle(ev.LeaseRequested(WORKER, INSTANCE), now)
            granted = next((e for e in effects if isinstance(e, fx.LeaseGranted)), None)
            if granted is None:
                return done
            held, length = ev.HeldLease(granted.task, granted.token), 0
            for part in granted.records:
                length += part.stop - part.start
                self.trained.update((part.file, at) for at in range(part.start, part.stop))
            self.version += 1
            applied = ev.MinibatchApplied(WORKER, held, length, Version(self.version), 0.5, 0)
            self.handle(applied, now)
            completed = ev.TaskCompleted(
                WORKER, held, minibatches=1, applied=1, records=length, examples=length
            )
            self.handle(completed, now)
        return tasks


def test_a_job_trains_what_arrives_and_ends_when_it_is_stopped() -> None:
    player = Player(JobStateMachine(stream_settings(WindowRule(records=10)), ()))
    assert player.train() == 0, "nothing has arrived"
    player.discover(6)
    assert player.train() == 2
    assert "WindowEnded" not in player.kinds()
    player.discover(8, 3, first=1)
    player.train()
    assert player.kinds().count("WindowEnded") == 1
    assert player.job.view(0.0).progress.epoch == 2
    assert player.job.view(0.0).progress.records_total == 17
    player.handle(ev.StopRequested("enough"))
    assert player.kinds().count("WindowEnded") == 2
    assert player.trained == Counter({(f, r): 1 for f, n in enumerate((6, 8, 3)) for r in range(n)})
    assert player.handle(ev.LeaseRequested(WORKER, INSTANCE)) == [fx.LeaveJob("job-over")]


def test_a_stopped_stream_trains_what_has_arrived_before_it_ends() -> None:
    player = Player(JobStateMachine(stream_settings(WindowRule(seconds=60)), ()))
    player.discover(9)
    player.train(1)
    player.handle(ev.StopRequested("enough"))
    player.handle(ev.StopRequested("enough"))  # as a new master repeats it
    assert player.kinds().count("StreamEnded") == 1
    player.discover(5, first=1)
    player.train()
    assert sum(player.trained.values()) == 9
    assert "WindowEnded" in player.kinds()


def test_a_window_of_seconds_ends_with_its_time_though_nothing_arrives() -> None:
    player = Player(JobStateMachine(stream_settings(WindowRule(seconds=60)), ()))
    player.discover(4, now=10.0)
    player.train(now=11.0)
    player.handle(ev.Tick(), 69.0)
    assert "WindowEnded" not in player.kinds()
    player.handle(ev.Tick(), 70.0)
    assert "WindowEnded" in player.kinds()


@given(
    records=st.lists(st.integers(0, 13), min_size=1, max_size=8),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.booleans()), max_size=10),
    per_window=st.integers(1, 30),
    barrier=st.booleans(),
)
def test_each_record_trains_once_whenever_masters_die(
    records: list[int], steps: list[tuple[int, int, bool]], per_window: int, barrier: bool
) -> None:
    """Splits arrive, tasks train, masters are replaced from a snapshot of that moment."""
    settings = stream_settings(WindowRule(records=per_window), epoch_barrier=barrier)
    player = Player(JobStateMachine(settings, ()))
    arrived = 0
    for splits, tasks, dies in steps:
        player.discover(*records[arrived : arrived + splits], first=arrived)
        arrived = min(len(records), arrived + splits)
        player.train(tasks)
        if dies:
            saved = json.loads(json.dumps(player.job.snapshot()))
            counts = ParameterCounts(Version(player.version), {})
            restored = JobStateMachine.restore(settings, (), (), saved, counts)
            version, player = player.version, Player(restored, player.trained.elements())
            player.version = version
    player.discover(*records[arrived:], first=arrived)
    player.train()
    player.handle(ev.StopRequested("enough"))
    player.train()
    places = [(split, at) for split, count in enumerate(records) for at in range(count)]
    assert player.trained == Counter(places)
    assert player.job.view(0.0).records_trained == len(places)
    assert player.job.view(0.0).progress.num_epochs == -(-len(places) // per_window)
