"""How a job is seen from outside: its rooms as one ``JobView``."""

from __future__ import annotations

from dataclasses import replace

from edl_master.core.components import Rooms
from edl_master.core.effects import JobPhase
from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.settings import JobType
from edl_master.core.view import JobView, ProgressView, TaskCounts


def view_job(rooms: Rooms, phase: JobPhase, now: float) -> JobView:
    """Say what the job looks like now."""

    def task_of(worker: WorkerId) -> TaskKey | None:
        leases = rooms.ledger.leases.of(worker)
        return leases[0].task.key if leases else None

    ending = rooms.outcome.ending
    return JobView(
        type=rooms.settings.type,
        phase=phase,
        progress=_progress(rooms, now),
        metrics=dict(rooms.evaluations.metrics),
        workers=rooms.members.views(task_of, now),
        tasks=_tasks(rooms),
        failure=ending.failure if ending else None,
        seconds=rooms.progress.seconds,
        min_workers=rooms.members.minimum,
        max_workers=rooms.members.maximum,
        dead_letters=tuple(rooms.ledger.dead_letters),
        records_trained=rooms.ledger.records_complete(TaskType.TRAINING),
        records_replayed=rooms.ledger.records_replayed,
        preemptions=rooms.members.preemptions,
        worker_failures=rooms.members.failures,
        predictions=rooms.progress.predictions,
        gradients_rejected=rooms.progress.gradients_rejected,
        staleness_mean=rooms.progress.staleness_mean,
    )


def _progress(rooms: Rooms, now: float) -> ProgressView:
    progress, main, total = rooms.progress, rooms.course.main, rooms.course.records_total
    done = rooms.ledger.records_complete(main) + rooms.ledger.records_applied(main)
    training = rooms.settings.type is JobType.TRAIN
    return ProgressView(
        records_done=done,
        records_total=total,
        epoch=rooms.course.epoch,
        num_epochs=rooms.settings.num_epochs if training else 0,
        steps=progress.steps,
        parameter_version=progress.version,
        records_per_s=progress.per_s(now),
        pace_per_s=progress.pace_per_s,
        eta_s=progress.eta_s(total - done, now),
        loss=progress.loss,
        goodput=progress.goodput.ratio,
        productive_s=progress.goodput.productive_s,
        lost_s=progress.goodput.lost_s,
    )


def _tasks(rooms: Rooms) -> dict[TaskType, TaskCounts]:
    """Counts of every type that there is anything to say about."""
    tasks = {type_: rooms.ledger.counts(type_) for type_ in TaskType}
    main = rooms.course.main
    tasks[main] = replace(tasks[main], pending=tasks[main].pending + rooms.course.unopened)
    return {type_: counts for type_, counts in tasks.items() if counts != TaskCounts()}
