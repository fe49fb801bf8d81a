"""Takes in what the instances of workers, and the platform, report about themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edl_master.core.effects import Effect, Severity
from edl_master.core.events import (
    InstanceExited,
    InstanceFound,
    InstanceInspected,
    InstanceNotStarted,
    InstancePending,
    InstanceSeen,
    WorkerRegistered,
)
from edl_master.core.failure_policy import ExitKind, classify_exit, describe_exit
from edl_master.core.identifiers import InstanceId, WorkerId, WorkerState
from edl_master.core.instance_control import InstanceControl, InstanceEnd, worker_event
from edl_master.core.interruption import WorkersSeen
from edl_master.core.worker import MAX_INSTANCES, Worker
from edl_master.core.worker_pool import WorkerPool

_MAX_CHARACTERS = 500
"""The limit of a platform's text on an instance: a status may have a thousand of them."""


class InstanceReports:
    """Keeps the state of workers in line with what is reported about their instances.

    Args:
        pool: the workers.
        control: stops instances that are not wanted, and accounts for their ends.
        emit: takes effects.
    """

    def __init__(
        self, pool: WorkerPool, control: InstanceControl, emit: Callable[[Effect], None]
    ) -> None:
        self._pool = pool
        self._control = control
        self._emit = emit

    def take_over(self, seen: WorkersSeen | None) -> None:
        """Count on from what an earlier master reported last, after its snapshot or without one."""
        if seen is not None:
            self._pool.preemptions, self._pool.failures = seen.preemptions, seen.failures
            self._pool.running_before = dict(seen.running)

    def handle_registration(self, event: WorkerRegistered, now: float) -> Worker | str | None:
        """Make an instance its worker's current one; return the worker, or why it must leave.

        A new instance replaces the current one: nothing starts a second one without reason.
        None when the instance is the current one already, whatever its state is by now.
        """
        if event.worker >= self._pool.maximum and self._pool.find(event.worker) is None:
            return "unknown-worker"
        worker = self._pool.find_or_add(event.worker, now)
        if not self._pool.wants(worker) or worker.state is WorkerState.LEAVING:
            return self._why_leave(worker)
        if worker.has_seen_end_of(event.instance):
            return "replaced"
        if event.instance == worker.instance:
            worker.host, worker.pid = event.host, event.pid  # a found instance has none yet
            self.find_sender(worker.id, event.instance, now)
            return None
        worker.registered += 1
        if worker.registered > MAX_INSTANCES:
            self._refuse_instance(worker)
            return "replaced"
        if worker.instance is not None or worker.state is WorkerState.GONE:
            worker.clear_instance()
        worker.move(WorkerState.LOADING, now)
        worker.attempt = max(worker.attempt, 0)
        worker.instance, worker.host, worker.pid = event.instance, event.host, event.pid
        worker.last_message_at = now
        worker.watch.begin(now)
        line = f"{worker.name} is running and loads the model file."
        self._emit(worker_event("WorkerStarted", line, worker, attempt=str(worker.attempt)))
        return worker

    def _refuse_instance(self, worker: Worker) -> None:
        """Say that an instance is one too many, once for each start of its worker."""
        if worker.registered == MAX_INSTANCES + 1:
            line = (
                f"{worker.name} has registered as {MAX_INSTANCES} instances since it was started;"
                " further ones are refused. Another program starts it, or it invents their names."
            )
            self._emit(worker_event("InstanceRefused", line, worker, Severity.WARNING))

    def handle_seen(self, event: InstanceSeen, now: float) -> None:
        """Handle an instance that the platform has seen, and that has not been heard yet."""
        match event:
            case InstanceFound():
                self.handle_found(event, now)
            case InstancePending():
                self.handle_pending(event, now)
            case InstanceInspected():
                self.handle_inspection(event, now)

    def handle_found(self, event: InstanceFound, now: float) -> None:
        """Take over a living instance of an earlier master.

        It is the current one of its worker unless another one has registered. The master has
        not heard from it yet, so it is lost until its first message.
        """
        worker = self._pool.find_or_add(event.worker, now)
        if event.attempt > self._pool.running_before.pop(worker.id, event.attempt):
            self._control.handle_unseen_end(worker)  # the one before it
        if worker.instance == event.instance:
            worker.attempt = max(worker.attempt, event.attempt)  # it registered first
        if worker.state is not WorkerState.GONE:
            return
        worker.clear_instance()
        worker.move(WorkerState.LOST, now)
        worker.instance, worker.attempt = event.instance, event.attempt
        worker.false_alarms = -1  # its first message is no false alarm
        line = f"{worker.name} has a process from before the master was restarted."
        self._emit(worker_event("WorkerFound", line, worker))
        if not self._pool.wants(worker):
            self._control.stop(worker, "scaled-down", now)

    def handle_ready(self, worker: Worker, now: float) -> bool:
        """Record that the current instance has loaded the model; False when it was ready before."""
        if worker.state is WorkerState.READY:
            return False
        worker.move(WorkerState.READY, now)
        worker.was_ready = True
        worker.watch.begin(now)
        self._emit(worker_event("WorkerReady", f"{worker.name} is ready.", worker))
        return True

    def find_sender(
        self, worker_id: WorkerId, instance: InstanceId | None, now: float
    ) -> Worker | str:
        """Find the worker of an instance that sent a message, or why the instance must leave.

        Args:
            worker_id: the worker that the message names.
            instance: the instance that the message names; None if it names none.
            now: seconds.
        """
        worker = self._pool.find(worker_id)
        if worker is None:
            return "unknown-worker"
        if instance is not None and instance != worker.instance:
            return "unknown-worker" if worker.instance is None else "replaced"
        worker.last_message_at = now
        if worker.state is WorkerState.LEAVING:
            return self._why_leave(worker)
        if worker.state is WorkerState.GONE:
            return "replaced"
        if worker.state is WorkerState.LOST:
            worker.move(WorkerState.READY if worker.was_ready else WorkerState.LOADING, now)
            worker.false_alarms += 1
            worker.watch.since = now
            self._emit(
                worker_event("WorkerRecovered", f"{worker.name} sends messages again.", worker)
            )
        return worker

    def _why_leave(self, worker: Worker) -> str:
        if self._pool.closed:
            return "job-over"
        return "replaced" if self._pool.wants(worker) else "scaled-down"

    def handle_leaving(self, worker: Worker, reason: str, now: float) -> None:
        """Handle an instance's notice that it leaves, for its own or its platform's reason.

        An instance that a signal terminates without a request of this master is preempted.
        """
        if worker.state not in (WorkerState.LEAVING, WorkerState.GONE):
            kind = ExitKind.PREEMPTED if reason == "terminated" else ExitKind.LEFT
            worker.leave(reason, kind, now)

    def handle_exit(self, event: InstanceExited, now: float) -> tuple[Worker, InstanceEnd] | None:
        """Handle the end of an instance; None when it was not its worker's current one."""
        worker = self._pool.find(event.worker)
        if worker is None or worker.state is WorkerState.GONE or not worker.is_current(event):
            return None
        leaving = worker.leaving_as
        if leaving is ExitKind.CRASHED or leaving is ExitKind.KILLED:
            kind: ExitKind = leaving
        else:
            preempted = event.preempted or leaving is ExitKind.PREEMPTED
            kind = classify_exit(
                event.signal,
                preempted=preempted and leaving is not ExitKind.LEFT,
                leaving=leaving is not None,
            )
        how = describe_exit(event.exit_code, event.signal, event.cause)
        if leaving is not None:
            how = f"{how}, {worker.leave_reason}"
        return worker, self._control.handle_end(worker, kind, how, event.log_tail, now)

    def handle_pending(self, event: InstancePending, now: float) -> None:
        """Record whether an instance waits for a place; meanwhile it has no deadline."""
        worker = self._pool.find(event.worker)
        if worker is None or worker.state is not WorkerState.STARTING:
            return
        detail = _brief(event.detail)
        if detail and event.reason != worker.pending.partition(":")[0]:
            line = f"{worker.name} is waiting to start: {detail}"
            self._emit(
                worker_event("WorkerPending", line, worker, Severity.WARNING, reason=event.reason)
            )
        worker.pending = f"{event.reason}: {detail}" if detail else event.reason
        worker.since = now
        worker.silence, worker.inspected_at = "", None

    def handle_inspection(self, event: InstanceInspected, now: float) -> None:
        """Handle a platform's answer about an instance that runs and does not register."""
        worker = self._pool.find(event.worker)
        if worker is None or worker.state is not WorkerState.STARTING or worker.pending:
            return
        if event.attempt != worker.attempt:
            return  # about an earlier instance
        summary = _brief(event.summary)
        silence = f"it runs and has not reached the master; {summary}"
        if silence != worker.silence:
            line = (
                f"{worker.name} has run for {now - worker.since:.0f} s and has not reached the"
                f" master; {summary}"
            )
            self._emit(worker_event("WorkerSilent", line, worker, Severity.WARNING))
        worker.silence = silence

    def handle_failed_start(
        self, event: InstanceNotStarted, now: float
    ) -> tuple[Worker, InstanceEnd] | None:
        """Handle an instance that could not be started; None when none was being started."""
        worker = self._pool.find(event.worker)
        if worker is None or worker.instance is not None or worker.state is WorkerState.GONE:
            return None
        how = f"could not be started: {event.reason}"
        end = self._control.handle_end(worker, ExitKind.CRASHED, how, "", now)
        return worker, replace(end, permanent=event.permanent)


def _brief(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
