"""All workers of a job: who is wanted, who is there, who is missing, who gets a new body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from math import ldexp
from typing import Any

from edl_master.core.effects import Effect, Record, Severity, StartWorker, StopWorker
from edl_master.core.events import InstanceExited, InstanceFound, WorkerRegistered
from edl_master.core.failure_policy import ExitKind, classify_exit, describe_exit, restart_delay_s
from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import InstanceId, TaskKey, WorkerId, WorkerState
from edl_master.core.progress import Rate
from edl_master.core.settings import Timings
from edl_master.core.view import WorkerView
from edl_master.core.worker import Member


@dataclass(frozen=True, slots=True)
class InstanceEnd:
    """How a body ended, for those who decide what follows."""

    kind: ExitKind
    how: str
    productive: bool
    log_tail: str


@dataclass(slots=True)
class OverdueInstances:
    """What a look at the clock found."""

    lost: list[Member] = field(default_factory=list)
    given_up: list[tuple[Member, InstanceEnd]] = field(default_factory=list)


class WorkerPool:
    """All workers that a job has or had.

    Args:
        minimum, maximum: how many workers are wanted; numbers 0 to ``maximum - 1``.
        timings: deadlines and delays.
        emit: takes effects.
    """

    def __init__(
        self, minimum: int, maximum: int, timings: Timings, emit: Callable[[Effect], None]
    ) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.target = maximum
        self.preemptions = 0
        self.failures = 0
        self._timings = timings
        self._emit = emit
        self._members: dict[WorkerId, Member] = {}
        self.over = False

    # --- wanting ---------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start every wanted worker that has no body yet."""
        for number in range(self.target):
            member = self._member(WorkerId(number), now)
            if member.state is WorkerState.GONE and member.restart_at is None:
                self._start(member, now)

    def scale(self, minimum: int, maximum: int, now: float) -> None:
        """Want workers between other numbers: the most of them, until that turns out to be many."""
        self.minimum, self.maximum = minimum, maximum
        self.aim(maximum, now)

    def aim(self, target: int, now: float) -> None:
        """Want so many workers of those that may be; the highest numbers leave first."""
        self.target = target
        for member in self._members.values():
            if not self.wanted(member):
                self.stop(member, "scaled-down", now)
        self.begin(now)

    def stop_all(self, now: float) -> None:
        """The job is over: nobody is wanted any more."""
        self.over = True
        for member in self._members.values():
            self.stop(member, "job-over", now)

    def wanted(self, member: Member) -> bool:
        """Whether the worker should have a body."""
        return not self.over and member.id < self.target

    def stop(self, member: Member, reason: str, now: float) -> None:
        """Ask a body to leave, unless it is leaving already."""
        member.restart_at = None
        if member.state in (WorkerState.GONE, WorkerState.LEAVING):
            return
        self._leave(member, reason, ExitKind.LEFT, now)
        self._emit(StopWorker(member.id, reason))

    def end_hanging(self, member: Member, reason: str, now: float) -> InstanceEnd:
        """Kill a body that gets nowhere; return its end as those who decide have to take it."""
        self._kill(member, reason, ExitKind.CRASHED, now)
        return InstanceEnd(ExitKind.CRASHED, reason, member.productive, member.watch.stacks)

    def _kill(self, member: Member, reason: str, kind: ExitKind, now: float) -> None:
        if member.state is not WorkerState.LEAVING:
            self._leave(member, reason, kind, now)
        member.killed_at = now
        self._emit(StopWorker(member.id, reason, kill=True))

    def _leave(self, member: Member, reason: str, kind: ExitKind, now: float) -> None:
        member.move(WorkerState.LEAVING, now)
        member.leave_reason = reason
        member.leaving_as = kind

    # --- a body's life ---------------------------------------------------------------------

    def _start(self, member: Member, now: float) -> None:
        member.new_body()
        member.move(WorkerState.STARTING, now)
        member.attempt += 1
        self._emit(StartWorker(member.id, member.attempt))

    def register(self, event: WorkerRegistered, now: float) -> Member | str | None:
        """Take a body as its worker's present one; return the worker, or why to leave.

        A newcomer replaces the present body: nobody starts a second one without reason.
        None when the body is the present one already, whatever it has become since.
        """
        if event.worker >= self.maximum and event.worker not in self._members:
            return "unknown-worker"
        member = self._member(event.worker, now)
        if not self.wanted(member) or member.state is WorkerState.LEAVING:
            return self._why_leave(member)
        if member.knows_dead(event.body):
            return "replaced"
        if event.body == member.body:
            member.host, member.pid = event.host, event.pid  # one that was only found has none
            self.hear(member.id, event.body, now)
            return None
        if member.body is not None or member.state is WorkerState.GONE:
            member.new_body()
        member.move(WorkerState.LOADING, now)
        member.attempt = max(member.attempt, 0)
        member.body, member.host, member.pid = event.body, event.host, event.pid
        member.heard_at = now
        member.watch.begin(now)
        line = f"{member.name} runs and loads the model file."
        self._note("WorkerStarted", line, member, attempt=str(member.attempt))
        return member

    def found(self, event: InstanceFound, now: float) -> None:
        """A body of an earlier master is alive: its worker's, unless another one has registered.

        Nothing was heard of it, so it is lost until it speaks.
        """
        member = self._member(event.worker, now)
        if member.body == event.body:
            member.attempt = max(member.attempt, event.attempt)  # it was quicker to register
        if member.state is not WorkerState.GONE:
            return
        member.new_body()
        member.move(WorkerState.LOST, now)
        member.body, member.attempt = event.body, event.attempt
        member.false_alarms = -1  # nobody took it for lost
        line = f"{member.name} has a process from before the master was started again."
        self._note("WorkerFound", line, member)
        if not self.wanted(member):
            self.stop(member, "scaled-down", now)

    def ready(self, member: Member, now: float) -> bool:
        """The present body has loaded the model; False when it had said so before."""
        if member.state is WorkerState.READY:
            return False
        member.move(WorkerState.READY, now)
        member.was_ready = True
        member.watch.begin(now)
        self._note("WorkerReady", f"{member.name} is ready.", member)
        return True

    def hear(self, worker: WorkerId, body: InstanceId | None, now: float) -> Member | str:
        """A body spoke; return its worker, or why it has to leave.

        Args:
            worker: who it says it is.
            body: which body; None when the message does not tell.
            now: seconds.
        """
        member = self._members.get(worker)
        if member is None:
            return "unknown-worker"
        if body is not None and body != member.body:
            return "unknown-worker" if member.body is None else "replaced"
        member.heard_at = now
        if member.state is WorkerState.LEAVING:
            return self._why_leave(member)
        if member.state is WorkerState.GONE:
            return "replaced"
        if member.state is WorkerState.LOST:
            back = WorkerState.READY if member.was_ready else WorkerState.LOADING
            member.move(back, now)
            member.false_alarms += 1
            member.watch.since = now
            self._note("WorkerBack", f"{member.name} is heard again.", member)
        return member

    def _why_leave(self, member: Member) -> str:
        if self.over:
            return "job-over"
        return "replaced" if self.wanted(member) else "scaled-down"

    def announce_leaving(self, member: Member, reason: str, now: float) -> None:
        """The body says that it ends, for a reason of its own or of its platform."""
        if member.state not in (WorkerState.LEAVING, WorkerState.GONE):
            kind = ExitKind.PREEMPTED if reason == "preempted" else ExitKind.LEFT
            self._leave(member, reason, kind, now)

    def next_task_started(self, worker: WorkerId, now: float) -> None:
        """A worker has done a task, and begins the next one that it holds."""
        self._members[worker].watch.begin(now)

    def busy_since(self, worker: WorkerId) -> float:
        """Since when a worker has been at what it does now."""
        return self._members[worker].watch.since

    def work_done(self, worker: WorkerId, records: int, steps: int, now: float) -> Member:
        """A worker that holds a lease got something done that counts."""
        member = self._members[worker]
        member.heard_at = now
        member.productive = True
        member.consecutive_failures = 0
        member.records += records
        member.steps += steps
        member.rate.add(records, now)
        return member

    def exited(self, event: InstanceExited, now: float) -> tuple[Member, InstanceEnd] | None:
        """A body is gone; None when it was not the present one of its worker."""
        member = self._members.get(event.worker)
        if member is None or member.state is WorkerState.GONE or not member.is_it(event):
            return None
        leaving = member.leaving_as
        if leaving is ExitKind.CRASHED or leaving is ExitKind.KILLED:
            kind: ExitKind = leaving
        else:
            preempted = event.preempted or leaving is ExitKind.PREEMPTED
            kind = classify_exit(
                event.exit_code,
                event.signal,
                preempted=preempted and leaving is not ExitKind.LEFT,
                leaving=leaving is not None,
            )
        how = describe_exit(event.exit_code, event.signal)
        if leaving is not None:
            how = f"{how}, {member.leave_reason}"
        return member, self._gone(member, kind, how, event.log_tail, now)

    def not_started(
        self, worker: WorkerId, reason: str, now: float
    ) -> tuple[Member, InstanceEnd] | None:
        """The platform could not start a body; None when none was being started."""
        member = self._members.get(worker)
        if member is None or member.body is not None or member.state is WorkerState.GONE:
            return None
        return member, self._gone(
            member, ExitKind.CRASHED, f"could not be started: {reason}", "", now
        )

    def _gone(
        self, member: Member, kind: ExitKind, how: str, log_tail: str, now: float
    ) -> InstanceEnd:
        member.move(WorkerState.GONE, now)
        member.last_exit = how
        ended = InstanceEnd(kind, how, member.productive, log_tail)
        name = member.name
        match kind:
            case ExitKind.PREEMPTED:
                self.preemptions += 1
                self._note("WorkerPreempted", f"{name} was taken away: {how}.", member)
            case ExitKind.LEFT:
                self._note("WorkerExited", f"{name} left: {how}.", member)
            case ExitKind.KILLED | ExitKind.CRASHED:
                self.failures += 1
                line = f"{name} ended: {how}."
                self._note("WorkerExited", line, member, Severity.WARNING)
        if self.wanted(member):
            member.restart_at = now + restart_delay_s(
                kind, member.consecutive_failures, self._timings
            )
            member.consecutive_failures += kind is not ExitKind.LEFT
        return ended

    # --- the clock -------------------------------------------------------------------------

    def restart_due(self, now: float) -> None:
        """Start the next bodies of wanted workers whose wait is over."""
        for member in self._members.values():
            if member.restart_at is not None and now >= member.restart_at:
                self._start(member, now)

    def look_at_clock(self, now: float) -> OverdueInstances:
        """Act on what should have happened by now and has not."""
        found = OverdueInstances()
        for member in self._members.values():
            self._look(member, now, found)
        return found

    def _look(self, member: Member, now: float, found: OverdueInstances) -> None:
        timings = self._timings
        in_state_s = now - member.since
        silent_s = now - (member.heard_at if member.heard_at is not None else member.since)
        match member.state:
            case WorkerState.STARTING if in_state_s > timings.start_timeout_s:
                reason = f"did not register within {timings.start_timeout_s:g} s"
                self._kill(member, reason, ExitKind.CRASHED, now)
            case WorkerState.LOADING if silent_s > timings.start_timeout_s:
                self._lose(member, silent_s, found, now)
            case WorkerState.READY if silent_s > self._loss_s(member):
                self._lose(member, silent_s, found, now)
            case WorkerState.LOST if in_state_s > timings.lost_kill_s:
                reason = f"was not heard for {silent_s:.0f} s"
                self._kill(member, reason, ExitKind.KILLED, now)
            case WorkerState.LEAVING if member.killed_at is None:
                if in_state_s > timings.worker_grace_s:
                    reason, kind = member.leave_reason, member.leaving_as or ExitKind.LEFT
                    self._kill(member, reason, kind, now)
            case WorkerState.LEAVING if now - (member.killed_at or now) > timings.exit_wait_s:
                how = f"{member.leave_reason}; its end was never reported"
                kind = member.leaving_as or ExitKind.LEFT
                found.given_up.append((member, self._gone(member, kind, how, "", now)))
            case _:
                pass

    def _loss_s(self, member: Member) -> float:
        """Silence after which a ready body is lost: longer for one that has come back before."""
        doublings = min(member.false_alarms, self._timings.loss_patience)
        return ldexp(self._timings.heartbeat_loss_s, doublings)

    def _lose(self, member: Member, silent_s: float, found: OverdueInstances, now: float) -> None:
        member.move(WorkerState.LOST, now)
        found.lost.append(member)
        line = f"{member.name} has not been heard for {silent_s:.1f} s."
        self._note("WorkerLost", line, member, Severity.WARNING)

    def extend_deadlines(self, pause_s: float) -> None:
        """Do not count time in which nobody could be heard."""
        for member in self._members.values():
            member.since += pause_s
            member.watch.extend_deadlines(pause_s)
            if member.heard_at is not None:
                member.heard_at += pause_s
            if member.killed_at is not None:
                member.killed_at += pause_s

    # --- looking ---------------------------------------------------------------------------

    def loading(self) -> Iterator[Member]:
        """Workers that are heard and load the model file."""
        return (m for m in self._members.values() if m.state is WorkerState.LOADING)

    def ready_ones(self) -> Iterator[Member]:
        """Workers that are heard and hold a task, or may ask for one."""
        return (m for m in self._members.values() if m.state is WorkerState.READY)

    def time_spent(self, holders: Set[WorkerId]) -> Counter[TimeCategory]:
        """What the wanted workers do at this moment, for the accounts of goodput."""
        spent: Counter[TimeCategory] = Counter()
        for number in range(self.target):
            member = self._members.get(WorkerId(number))
            spent[member.spends(member.id in holders) if member else TimeCategory.STARTING] += 1
        return spent

    @property
    def all_gone(self) -> bool:
        """Whether no worker has a body."""
        return all(member.state is WorkerState.GONE for member in self._members.values())

    @property
    def ready_count(self) -> int:
        """Workers that can be given tasks."""
        return sum(member.state is WorkerState.READY for member in self._members.values())

    def is_alone(self, worker: WorkerId) -> bool:
        """Whether no other worker could take a task now or soon."""
        return not any(m.alive and m.id != worker for m in self._members.values())

    def views(
        self, held: Callable[[WorkerId], TaskKey | None], now: float
    ) -> tuple[WorkerView, ...]:
        """Say what all workers look like; ``held`` names the task that one works on."""
        return tuple(m.view(held(m.id), now) for m in self._members.values())

    # --- small things ----------------------------------------------------------------------

    def _member(self, worker: WorkerId, now: float) -> Member:
        member = self._members.get(worker)
        if member is None:
            member = Member(worker, Rate(self._timings.rate_window_s, now), since=now)
            self._members[worker] = member
        return member

    def _note(
        self,
        kind: str,
        line: str,
        member: Member,
        severity: Severity = Severity.INFO,
        **facts: str,
    ) -> None:
        self._emit(Record(kind, line, severity, {"worker": str(member.id), **facts}))

    def may_hold(self, worker: WorkerId) -> bool:
        """Whether a worker has a body that may hold leases: ready, or on its way out."""
        member = self._members.get(worker)
        return member is not None and member.state in (WorkerState.READY, WorkerState.LEAVING)

    # --- snapshots -------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what outlives the master as JSON-able values; bodies are found anew."""
        return {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "preemptions": self.preemptions,
            "failures": self.failures,
        }

    def restore(self, saved: Mapping[str, Any], *, scaled: bool) -> None:
        """Take over what ``snapshot`` saved; with ``scaled``, the wanted numbers too."""
        if scaled:
            self.minimum, self.maximum = saved["minimum"], saved["maximum"]
            self.target = self.maximum
        self.preemptions, self.failures = saved["preemptions"], saved["failures"]

    def check_invariants(self) -> None:
        """Raise AssertionError when a worker's state contradicts itself."""
        for member in self._members.values():
            member.check_invariants()
            assert member.restart_at is None or self.wanted(member), member
