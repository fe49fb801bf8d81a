"""Builds the ``JobView`` of a job from its components."""

from __future__ import annotations

from dataclasses import replace

from edl_master.core.components import JobComponents
from edl_master.core.effects import JobPhase
from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.view import JobView, ProgressView, TaskCounts


def build_view(components: JobComponents, phase: JobPhase, now: float) -> JobView:
    """Say what the job looks like now."""

    def task_of(worker: WorkerId) -> TaskKey | None:
        leases = components.ledger.leases.of(worker)
        return leases[0].task.key if leases else None

    ending = components.outcome.ending
    examples, examples_of = components.ledger.examples(components.workflow.main)
    return JobView(
        type=components.settings.type,
        phase=phase,
        progress=_progress(components, now),
        metrics=dict(components.evaluations.metrics),
        workers=components.workers.views(task_of, now),
        tasks=_tasks(components),
        failure=ending.failure if ending else None,
        seconds=components.progress.seconds,
        min_workers=components.workers.minimum,
        max_workers=components.workers.maximum,
        dead_letters=components.ledger.dead_letters,
        records_trained=components.ledger.records_done(TaskType.TRAINING),
        examples=examples,
        examples_of=examples_of,
        records_replayed=components.ledger.records_replayed,
        preemptions=components.workers.preemptions,
        worker_failures=components.workers.failures,
        predictions=components.progress.predictions,
        gradients_rejected=components.progress.gradients_rejected,
        staleness_mean=components.progress.staleness_mean,
        saved_version=components.snapshots.saved_version,
        warnings=tuple(components.outcome.warnings),
        learning_rate=components.callbacks.learning_rate,
        requested_rates=components.callbacks.requested_rates,
    )


def _progress(components: JobComponents, now: float) -> ProgressView:
    progress, main, total = (
        components.progress,
        components.workflow.main,
        components.workflow.records_total,
    )
    done = components.ledger.records_done(main)
    tasks, workflow = _main_tasks(components), components.workflow
    # The last epoch stays the present one when it is over.
    is_done = not (tasks.pending or tasks.leased)
    return ProgressView(
        records_done=done,
        records_total=total,
        epoch=workflow.epoch,
        num_epochs=workflow.epochs,
        epochs_done=workflow.epochs if is_done and workflow.epochs else max(0, workflow.epoch - 1),
        is_stream=components.stream is not None,
        steps=progress.steps,
        parameter_version=progress.version,
        records_per_s=progress.per_s(now),
        mean_records_per_s=progress.mean_records_per_s,
        eta_s=-1.0 if components.stream else progress.eta_s(total - done, now),
        loss=progress.loss,
        goodput=progress.goodput.ratio,
        productive_s=progress.goodput.productive_s,
        lost_s=progress.goodput.lost_s,
    )


def _tasks(components: JobComponents) -> dict[TaskType, TaskCounts]:
    """Return the counts of every type of tasks that the job has."""
    tasks = {type_: components.ledger.counts(type_) for type_ in TaskType}
    tasks[components.workflow.main] = _main_tasks(components)
    return {type_: counts for type_, counts in tasks.items() if counts != TaskCounts()}


def _main_tasks(components: JobComponents) -> TaskCounts:
    """Return the counts of the main work, also of rounds that are not open yet."""
    counts = components.ledger.counts(components.workflow.main)
    return replace(counts, pending=counts.pending + components.workflow.unopened)
