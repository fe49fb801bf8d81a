"""Snapshots of a job's position: taken from the components, and put back into new ones."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from edl_master.core.components import JobComponents
from edl_master.core.identifiers import ParameterCounts, TaskType
from edl_master.core.interruption import Interruption
from edl_master.core.mixing import Mixing
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.tasks import Round

SNAPSHOT_FORMAT = 3
_OLD_FORMATS = (2,)
"""Readable too: in these, tasks were not mixed."""

_KEPT_ROUNDS = {
    JobType.TRAIN: (TaskType.TRAINING,),
    JobType.EVALUATE: (TaskType.EVALUATION, TaskType.EVALUATION_SUMMARY),
    JobType.PREDICT: (TaskType.PREDICTION,),
}
"""What these tasks have done survives the master: in the parameters, in the snapshot itself, in
files. Evaluation and export of a training job need a frozen version, and start again."""


def identify(settings: JobSettings, data: tuple[int, ...]) -> dict[str, Any]:
    """Return what has to be equal for a position to mean the same: tasks and their order."""
    return {
        "type": settings.type.value,
        "records": sum(data),
        "files": sha256(",".join(map(str, data)).encode()).hexdigest(),
        "records_per_task": settings.records_per_task,
        "minibatch_size": settings.minibatch_size,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
        "mixing": mixing_to_json(settings.mixing),
    }


def mixing_to_json(mixing: Mixing | None) -> list[int] | None:
    """Return JSON-able values."""
    return [mixing.blocks, mixing.neighbours] if mixing else None


def mixing_of(saved: Mapping[str, Any]) -> Mixing | None:
    """Return how the tasks of a snapshot are mixed, whichever version has taken it."""
    mixing = saved["job"].get("mixing")
    return Mixing(*mixing) if mixing else None


def take_snapshot(components: JobComponents, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the position as JSON-able values."""
    settings = components.settings
    kept = _KEPT_ROUNDS[settings.type]
    return {
        "format": SNAPSHOT_FORMAT,
        "job": dict(identity),
        "workers_asked": [settings.min_workers, settings.max_workers],
        "ledger": components.ledger.snapshot(kept, components.evaluations.rounds_to_repeat),
        "workflow": components.workflow.snapshot(),
        "layer_states": components.layer_states.snapshot(),
        "evaluations": components.evaluations.snapshot(),
        "progress": components.progress.snapshot(),
        "workers": components.workers.snapshot(),
        "replication": components.replication.snapshot(),
    }


def restore_snapshot(
    components: JobComponents,
    identity: Mapping[str, Any],
    saved: Mapping[str, Any],
    counts: ParameterCounts,
    interruption: Interruption,
) -> None:
    """Put a position into the components of a new job.

    How many workers are wanted is kept, unless the job now asks for other numbers than then.
    ``counts`` is what the parameters count: they may be some minibatches ahead. The interruption
    since the snapshot is accounted for.

    Raises:
        ValueError: it is a position in other data, in another order, or of another format.
    """
    if saved["format"] not in (SNAPSHOT_FORMAT, *_OLD_FORMATS):
        raise ValueError(f"snapshot format {saved['format']} is not {SNAPSHOT_FORMAT}")
    for name, value in identity.items():
        was = saved["job"].get(name)
        if was != value:
            raise ValueError(f"the snapshot is of another job: {name} was {was}, is {value}")
    components.workflow.restore(saved["workflow"])
    rounds = []
    for entry in saved["ledger"]["rounds"]:
        round_ = _make_round(components, TaskType(entry["type"]), entry["number"])
        round_.restore(entry)
        rounds.append(round_)
    components.ledger.restore(saved["ledger"], rounds)
    unreported = components.ledger.reconcile(counts.applied)
    components.evaluations.restore(saved["evaluations"])
    components.layer_states.restore(saved)
    components.progress.restore(saved["progress"])
    components.progress.reconcile(unreported, counts.version)
    settings = components.settings
    scaled = saved["workers_asked"] == [settings.min_workers, settings.max_workers]
    components.workers.restore(saved["workers"], scaled=scaled)
    components.reports.take_over(interruption.workers)
    minimum, maximum = components.workers.minimum, components.workers.maximum
    components.worker_count.scale(minimum, maximum)
    components.progress.record_interruption(interruption, maximum)
    components.ledger.count_undone(*interruption.records)
    learning_rate = components.callbacks.learning_rate
    origin = saved.get("replication")  # not in snapshots of earlier versions
    components.replication.restore(components.progress.version, origin, learning_rate)
    components.snapshots.saved_version = components.progress.version


def _make_round(components: JobComponents, type_: TaskType, number: int) -> Round:
    """Return a round at its beginning: of the main work, or of one task that follows from it."""
    if type_ is components.workflow.main:
        return components.workflow.make_round(number)
    return Round(type_, number, None)
