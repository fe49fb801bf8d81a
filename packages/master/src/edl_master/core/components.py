"""The components of a job's heart, put together once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edl_master.core.effects import Effect
from edl_master.core.evaluation import Evaluations
from edl_master.core.ledger import Ledger
from edl_master.core.outcome import Outcome
from edl_master.core.progress import Progress
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.snapshot_schedule import SnapshotSchedule
from edl_master.core.stall_detector import StallDetector
from edl_master.core.tasks import TaskPartition
from edl_master.core.worker_count import WorkerCountPolicy
from edl_master.core.worker_pool import WorkerPool
from edl_master.core.workflow import Workflow, build_workflow


@dataclass(frozen=True, slots=True)
class JobComponents:
    """Everything that a job knows; ``emit`` takes the effects that the components decide on."""

    settings: JobSettings
    emit: Callable[[Effect], None]
    ledger: Ledger
    members: WorkerPool
    evaluations: Evaluations
    workflow: Workflow
    progress: Progress
    outcome: Outcome
    hanging: StallDetector
    keeping: SnapshotSchedule
    worker_count: WorkerCountPolicy


def build_components(
    settings: JobSettings,
    data: tuple[int, ...],
    validation: tuple[int, ...],
    data_names: Sequence[str],
    validation_names: Sequence[str],
    emit: Callable[[Effect], None],
) -> JobComponents:
    """Make the components of a new job; the arguments are those of ``JobState``."""
    main = TaskPartition(data, settings.records_per_task, data_names)
    if settings.type is JobType.TRAIN:
        scored = TaskPartition(validation, settings.records_per_task, validation_names)
    else:
        scored = main
    ledger = Ledger(settings.timings.lease_ttl_s)
    evaluations = Evaluations(ledger, scored, emit)
    return JobComponents(
        settings=settings,
        emit=emit,
        ledger=ledger,
        members=WorkerPool(settings.min_workers, settings.max_workers, settings.timings, emit),
        evaluations=evaluations,
        workflow=build_workflow(settings, main, ledger, evaluations, emit),
        progress=Progress(settings.timings.rate_window_s),
        outcome=Outcome(emit),
        hanging=StallDetector(settings.timings.patience),
        keeping=SnapshotSchedule(settings.snapshot_every_s),
        worker_count=WorkerCountPolicy(
            settings.min_workers, settings.max_workers, settings.worker_count
        ),
    )
