"""The components of a job's state machine, put together once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edl_master.core.autoscaling import WorkerCountPolicy
from edl_master.core.effects import Effect
from edl_master.core.epoch_callbacks import EpochCallbacks
from edl_master.core.evaluation import Evaluations
from edl_master.core.inherited_steps import InheritedSteps
from edl_master.core.instance_control import InstanceControl
from edl_master.core.instance_reports import InstanceReports
from edl_master.core.layer_states import AgreedLayerStates
from edl_master.core.ledger import Ledger
from edl_master.core.outcome import Outcome
from edl_master.core.progress import Progress
from edl_master.core.replication import Replication
from edl_master.core.save_schedule import CheckpointSchedule, SnapshotSchedule
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.stall_detector import StallDetector
from edl_master.core.tasks import TaskPartition
from edl_master.core.training_rounds import Epochs, TrainingRounds, Windows
from edl_master.core.windows import SplitStream
from edl_master.core.worker_pool import WorkerPool
from edl_master.core.workflow import Workflow, build_workflow


@dataclass(frozen=True, slots=True)
class JobComponents:
    """All state of a job; ``emit`` takes the effects that the components decide on.

    Attributes:
        stream: the data of a training job that has no end; None: the data is complete.
    """

    settings: JobSettings
    emit: Callable[[Effect], None]
    ledger: Ledger
    workers: WorkerPool
    instances: InstanceControl
    reports: InstanceReports
    evaluations: Evaluations
    callbacks: EpochCallbacks
    layer_states: AgreedLayerStates
    workflow: Workflow
    stream: SplitStream | None
    progress: Progress
    outcome: Outcome
    stalls: StallDetector
    snapshots: SnapshotSchedule
    checkpoints: CheckpointSchedule
    worker_count: WorkerCountPolicy
    replication: Replication


def build_components(
    settings: JobSettings,
    data: tuple[int, ...],
    validation: tuple[int, ...],
    data_names: Sequence[str],
    validation_names: Sequence[str],
    emit: Callable[[Effect], None],
    emit_now: Callable[[Effect], None],
) -> JobComponents:
    """Build the components of a new job; the arguments are those of ``JobStateMachine``.

    Args:
        emit: takes effects.
        emit_now: takes effects that need not wait for replicated training.
    """
    main = TaskPartition(data, settings.records_per_task, data_names)
    if settings.type is JobType.TRAIN:
        scored = TaskPartition(validation, settings.records_per_task, validation_names)
    else:
        scored = main
    stream = SplitStream(settings.window, settings.records_per_task) if settings.window else None
    rounds: TrainingRounds = (
        Epochs(settings, data, data_names) if stream is None else Windows(stream)
    )
    ledger = Ledger(settings.timings.lease_ttl_s)
    evaluations = Evaluations(ledger, scored, emit)
    callbacks = EpochCallbacks(ledger, emit)
    timings = settings.timings
    checkpoints = CheckpointSchedule(settings.checkpoint_steps)
    snapshots = SnapshotSchedule(settings.snapshot_interval_s)
    workflow = build_workflow(
        settings, main, rounds, ledger, evaluations, callbacks, checkpoints, emit
    )
    progress = Progress(settings.timings.rate_window_s)
    workers = WorkerPool(settings.min_workers, settings.max_workers, timings.rate_window_s)
    instances = InstanceControl(workers, timings, emit)
    return JobComponents(
        settings=settings,
        emit=emit,
        ledger=ledger,
        workers=workers,
        instances=instances,
        reports=InstanceReports(workers, instances, emit),
        evaluations=evaluations,
        callbacks=callbacks,
        layer_states=AgreedLayerStates(settings.code),
        workflow=workflow,
        stream=stream,
        progress=progress,
        outcome=Outcome(emit),
        stalls=StallDetector(settings.timings.stall),
        snapshots=snapshots,
        checkpoints=checkpoints,
        worker_count=WorkerCountPolicy(
            settings.min_workers, settings.max_workers, settings.worker_count
        ),
        replication=Replication(
            is_on=settings.replicated,
            incarnation=settings.incarnation,
            ledger=ledger,
            steps=InheritedSteps(ledger, workflow, progress, emit_now),
            snapshots=snapshots,
            emit=emit_now,
        ),
    )
