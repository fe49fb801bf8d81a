"""Checks deadlines, stalls, windows, snapshots and the number of workers at every tick."""

from __future__ import annotations

from edl_master.core.components import JobComponents
from edl_master.core.effects import JobPhase, LogEvent, WriteSnapshot
from edl_master.core.lease_recovery import LeaseRecovery
from edl_master.core.stall_monitor import StallMonitor


class PeriodicChecks:
    """Runs the checks of one tick, in a fixed order."""

    def __init__(
        self, components: JobComponents, recovery: LeaseRecovery, stalls: StallMonitor
    ) -> None:
        self._components = components
        self._recovery = recovery
        self._stalls = stalls

    def run(self, phase: JobPhase, now: float) -> None:
        """Act on everything that is due."""
        components = self._components
        self._recovery.take_back_expired(now)
        overdue = components.instances.check_deadlines(now)
        for worker in overdue.lost:
            self._recovery.handle_missed_heartbeats(worker, now)
        for worker, end in overdue.given_up:
            self._recovery.handle_end(worker, end, now)
            if not components.outcome.decided:
                components.instances.restart_due(now)
        if components.stream is not None:
            components.stream.pass_time(now)
        if not components.outcome.decided:
            self._stalls.check(now)
            working = phase in (JobPhase.RUNNING, JobPhase.FINISHING)
            if working and components.snapshots.is_due(now):
                components.emit(WriteSnapshot())
            if phase is JobPhase.RUNNING:
                self._adjust_worker_count(now)
        components.instances.restart_due(now)

    def _adjust_worker_count(self, now: float) -> None:
        """Try other numbers of workers between the minimum and the maximum."""
        components = self._components
        ledger, main = components.ledger, components.workflow.main
        done = ledger.records_done(main)
        ready = sum(worker.is_ready for worker in components.workers)
        decisions = components.worker_count.observe(now, ready, done)
        for made in decisions:
            components.emit(LogEvent(made.kind, made.why, facts=made.facts))
        if decisions:
            components.instances.set_target(decisions[-1].workers, now)
