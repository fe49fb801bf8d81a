"""Checks the progress of every worker: names a stalled one, asks for its stacks, stops it."""

from __future__ import annotations

from edl_master.core.components import JobComponents
from edl_master.core.effects import LogEvent, Severity
from edl_master.core.events import MemberUnreachable
from edl_master.core.identifiers import TaskType, WorkerState
from edl_master.core.lease_recovery import LeaseRecovery
from edl_master.core.leases import Lease
from edl_master.core.stall_detector import StallVerdict, WorkerActivity
from edl_master.core.worker import LOADING, WAITING, Worker


class StallMonitor:
    """Applies the stall detector to the workers of a job."""

    def __init__(self, components: JobComponents, recovery: LeaseRecovery) -> None:
        self._ledger = components.ledger
        self._workers = components.workers
        self._instances = components.instances
        self._stalls = components.stalls
        self._emit = components.emit
        self._recovery = recovery

    def take_stacks(self, worker: Worker, stacks: str) -> None:
        """Keep the stacks of a worker that was asked for them."""
        if not stacks or worker.watch.asked_at is None or worker.watch.stacks:
            return
        worker.watch.stacks = stacks
        facts = {"worker": str(worker.id), "stacks": stacks}
        line = f"{worker.name} reported the stacks of its threads."
        self._emit(LogEvent("WorkerStacks", line, Severity.WARNING, facts))

    def asks_for_stacks(self, worker: Worker) -> bool:
        """Return whether the worker's next heartbeat should bring its stacks."""
        return worker.watch.asked_at is not None and not worker.watch.stacks

    def check(self, now: float) -> None:
        """Name workers that send heartbeats but make no progress; stop those that stay stalled."""
        for worker in self._workers.in_state(WorkerState.LOADING):
            self._check(worker, None, now)
        holders = self._ledger.leases.holders
        for worker in self._workers.in_state(WorkerState.READY):
            if worker.id not in holders:
                self._check(worker, None, now)
            elif worker.phase == WAITING and worker.watch.stepped:
                # It waits for a step permit, so for another worker, which is checked as well.
                # Before the first step, the user's code that builds the pipeline may wait.
                worker.watch.since = now
            else:
                self._check(worker, self._ledger.leases.of(worker.id)[0], now)

    def _check(self, worker: Worker, lease: Lease | None, now: float) -> None:
        """Check a worker: at work on a task, before its first one, or between two."""
        activity = _activity(worker, lease)
        verdict = self._stalls.check(worker.watch, now, activity)
        if verdict is StallVerdict.NOTHING:
            return
        facts = {"worker": str(worker.id)}
        place = "asking for its next task"
        if lease is not None:
            facts["task"] = str(lease.task.key)
            place = self._ledger.place(lease.task)
        elif activity is WorkerActivity.LOADING:
            place = "loading the model file"
        stalled_s = now - worker.watch.since
        if verdict is StallVerdict.ASK:
            line = f"{worker.name} made no progress for {stalled_s:.0f} s in {place};"
            line += " asking for its stacks."
            self._emit(LogEvent("WorkerStallSuspected", line, Severity.WARNING, facts))
        else:
            reason = f"it made no progress for {stalled_s:.0f} s in {place}"
            end = self._instances.kill(worker, reason, now)
            line = f"{worker.name} is stopped: {reason}."
            self._emit(LogEvent("WorkerStalled", line, Severity.ERROR, facts))
            self._recovery.take_back_all(worker, end, now)

    def stop_unreachable(self, event: MemberUnreachable, now: float) -> None:
        """Stop a worker that another one, with which it should train in step, cannot reach."""
        worker = self._workers.find(event.worker)
        if worker is None or not worker.alive:
            return
        reason = f"it and worker {event.peer} cannot exchange gradients ({event.cause})"
        end = self._instances.kill(worker, reason, now)
        line = f"{worker.name} is stopped: {reason}. Workers have to reach each other."
        facts = {"worker": str(worker.id), "peer": str(event.peer)}
        self._emit(LogEvent("WorkerUnreachable", line, Severity.ERROR, facts))
        self._recovery.take_back_all(worker, end, now)


def _activity(worker: Worker, lease: Lease | None) -> WorkerActivity:
    if lease is not None:
        training = lease.task.key.type is TaskType.TRAINING
        return WorkerActivity.STEPS if training else WorkerActivity.WHOLE_TASK
    if worker.state is WorkerState.READY and worker.phase != LOADING:
        return WorkerActivity.ASKING
    return WorkerActivity.LOADING
