"""Starts and stops the instances of workers: on demand, and when a deadline has passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ldexp

from edl_master.core.effects import (
    Effect,
    InspectWorker,
    LogEvent,
    Severity,
    StartWorker,
    StopWorker,
)
from edl_master.core.failure_policy import ExitKind, restart_delay_s
from edl_master.core.identifiers import WorkerId, WorkerState
from edl_master.core.settings import Timings
from edl_master.core.worker import Worker
from edl_master.core.worker_pool import WorkerPool


@dataclass(frozen=True, slots=True)
class InstanceEnd:
    """How an instance ended.

    Attributes:
        kind: why it ended, as far as the policies distinguish it.
        how: the end in words.
        productive: it got some work done.
        log_tail: the last lines of its log, or its stacks.
        permanent: it could not be started, and no other one can.
    """

    kind: ExitKind
    how: str
    productive: bool
    log_tail: str
    permanent: bool = False


@dataclass(slots=True)
class OverdueInstances:
    """Instances whose deadline has passed.

    Attributes:
        lost: workers that have fallen silent.
        given_up: workers whose instance was killed and whose end was never reported.
    """

    lost: list[Worker] = field(default_factory=list)
    given_up: list[tuple[Worker, InstanceEnd]] = field(default_factory=list)


def worker_event(
    kind: str, line: str, worker: Worker, severity: Severity = Severity.INFO, **facts: str
) -> LogEvent:
    """Return an event about one worker."""
    return LogEvent(kind, line, severity, {"worker": str(worker.id), **facts})


class InstanceControl:
    """Decides which workers get an instance, which instances leave, and which are killed.

    Args:
        pool: the workers.
        timings: deadlines and delays.
        emit: takes effects.
    """

    def __init__(self, pool: WorkerPool, timings: Timings, emit: Callable[[Effect], None]) -> None:
        self._pool = pool
        self._timings = timings
        self._emit = emit

    # --- how many --------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start the workers of a job; instances of an earlier master have been found by now."""
        for worker_id in self._pool.running_before:
            worker = self._pool.find_or_add(worker_id, now)
            if worker.instance is None:
                self.handle_unseen_end(worker)
        self.start_wanted(now)

    def start_wanted(self, now: float) -> None:
        """Start every wanted worker that has no instance and is not waiting for a restart."""
        for number in range(self._pool.target):
            worker = self._pool.find_or_add(WorkerId(number), now)
            if worker.state is WorkerState.GONE and worker.restart_at is None:
                self._start(worker, now)

    def scale(self, minimum: int, maximum: int, now: float) -> None:
        """Change the wanted range; its maximum is wanted at first."""
        self._pool.minimum, self._pool.maximum = minimum, maximum
        self.set_target(maximum, now)

    def set_target(self, target: int, now: float) -> None:
        """Want this many workers of the range; those with the highest numbers leave."""
        self._pool.target = target
        for worker in self._pool:
            if not self._pool.wants(worker):
                self.stop(worker, "scaled-down", now)
        self.start_wanted(now)

    def stop_all(self, now: float) -> None:
        """Stop every worker for good: the job is over."""
        self._pool.closed = True
        for worker in self._pool:
            self.stop(worker, "job-over", now)

    # --- one instance ----------------------------------------------------------------------

    def _start(self, worker: Worker, now: float) -> None:
        worker.clear_instance()
        worker.move(WorkerState.STARTING, now)
        worker.attempt += 1
        worker.registered = 0
        self._emit(StartWorker(worker.id, worker.attempt))

    def stop(self, worker: Worker, reason: str, now: float) -> None:
        """Ask an instance to leave, unless it is leaving already."""
        worker.restart_at = None
        if worker.state in (WorkerState.GONE, WorkerState.LEAVING):
            return
        worker.leave(reason, ExitKind.LEFT, now)
        self._emit(StopWorker(worker.id))

    def kill(self, worker: Worker, reason: str, now: float) -> InstanceEnd:
        """Kill an instance that cannot go on; return its end, which counts as a crash."""
        self._kill(worker, reason, ExitKind.CRASHED, now)
        return InstanceEnd(ExitKind.CRASHED, reason, worker.productive, worker.watch.stacks)

    def _kill(self, worker: Worker, reason: str, kind: ExitKind, now: float) -> None:
        if worker.state is not WorkerState.LEAVING:
            worker.leave(reason, kind, now)
        worker.killed_at = now
        self._emit(StopWorker(worker.id, kill=True))

    def handle_end(
        self, worker: Worker, kind: ExitKind, how: str, log_tail: str, now: float
    ) -> InstanceEnd:
        """Account for the end of an instance, and schedule the next one of a wanted worker."""
        worker.move(WorkerState.GONE, now)
        worker.last_exit = how
        end = InstanceEnd(kind, how, worker.productive, log_tail)
        match kind:
            case ExitKind.PREEMPTED:
                self._pool.preemptions += 1
                line = f"{worker.name} was preempted: {how}."
                self._emit(worker_event("WorkerPreempted", line, worker))
            case ExitKind.LEFT:
                self._emit(worker_event("WorkerExited", f"{worker.name} left: {how}.", worker))
            case ExitKind.KILLED | ExitKind.CRASHED:
                self._pool.failures += 1
                line = f"{worker.name} ended: {how}."
                self._emit(worker_event("WorkerExited", line, worker, Severity.WARNING))
        if self._pool.wants(worker):
            delay_s = restart_delay_s(kind, worker.consecutive_failures, self._timings)
            worker.restart_at = now + delay_s
            worker.consecutive_failures += kind is not ExitKind.LEFT
        return end

    def handle_unseen_end(self, worker: Worker) -> None:
        """Account for the end of an instance that no master has reported.

        Why it ended is unknown, and it counts as preempted, as the platform port has it.
        """
        self._pool.preemptions += 1
        line = f"{worker.name} was preempted about when the master ended."
        self._emit(worker_event("WorkerPreempted", line, worker))

    # --- deadlines -------------------------------------------------------------------------

    def restart_due(self, now: float) -> None:
        """Start the next instances of wanted workers whose delay is over."""
        for worker in self._pool:
            if worker.restart_at is not None and now >= worker.restart_at:
                self._start(worker, now)

    def check_deadlines(self, now: float) -> OverdueInstances:
        """Act on every deadline that has passed."""
        overdue = OverdueInstances()
        for worker in self._pool:
            self._check(worker, now, overdue)
        return overdue

    def _check(self, worker: Worker, now: float, overdue: OverdueInstances) -> None:
        timings = self._timings
        in_state_s = now - worker.since
        silent_s = now - (
            worker.last_message_at if worker.last_message_at is not None else worker.since
        )
        match worker.state:
            case WorkerState.STARTING if not worker.pending:  # the platform has a place for it
                self._check_starting(worker, now)
            case WorkerState.LOADING if silent_s > timings.start_timeout_s:
                self._lose(worker, silent_s, overdue, now)
            case WorkerState.READY if silent_s > self._loss_s(worker):
                self._lose(worker, silent_s, overdue, now)
            case WorkerState.LOST if in_state_s > timings.lost_kill_s:
                reason = f"sent no message for {silent_s:.0f} s"
                self._kill(worker, reason, ExitKind.KILLED, now)
            case WorkerState.LEAVING if worker.killed_at is None:
                if in_state_s > timings.worker_grace_s:
                    kind = worker.leaving_as or ExitKind.LEFT
                    self._kill(worker, worker.leave_reason, kind, now)
            case WorkerState.LEAVING if now - (worker.killed_at or now) > timings.exit_wait_s:
                how = f"{worker.leave_reason}; its end was never reported"
                kind = worker.leaving_as or ExitKind.LEFT
                overdue.given_up.append((worker, self.handle_end(worker, kind, how, "", now)))
            case _:
                pass

    def _check_starting(self, worker: Worker, now: float) -> None:
        """Check an instance that runs, as far as its platform knows, but has not registered."""
        timings = self._timings
        looked_at = worker.since if worker.inspected_at is None else worker.inspected_at
        if now - worker.since > timings.start_timeout_s:
            reason = f"did not register within {timings.start_timeout_s:g} s"
            self._kill(worker, reason, ExitKind.CRASHED, now)
        elif now - looked_at > timings.inspect_s:
            worker.inspected_at = now
            self._emit(InspectWorker(worker.id))

    def _loss_s(self, worker: Worker) -> float:
        """Silence after which a ready instance is lost; it doubles with every false alarm."""
        doublings = min(worker.false_alarms, self._timings.loss_doublings)
        return ldexp(self._timings.heartbeat_loss_s, doublings)

    def _lose(self, worker: Worker, silent_s: float, overdue: OverdueInstances, now: float) -> None:
        worker.move(WorkerState.LOST, now)
        overdue.lost.append(worker)
        line = f"{worker.name} has sent no message for {silent_s:.1f} s."
        self._emit(worker_event("WorkerLost", line, worker, Severity.WARNING))

    def extend_deadlines(self, pause_s: float) -> None:
        """Do not count a pause in which the master received no message."""
        for worker in self._pool:
            worker.since += pause_s
            if worker.inspected_at is not None:
                worker.inspected_at += pause_s
            worker.watch.extend_deadlines(pause_s)
            if worker.last_message_at is not None:
                worker.last_message_at += pause_s
            if worker.killed_at is not None:
                worker.killed_at += pause_s
