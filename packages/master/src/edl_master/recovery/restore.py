"""Restores a job from the snapshot or checkpoint of an earlier master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from edl_master.adapters.checkpoint_files import (
    DATA,
    LEDGER,
    PLANE,
    Checkpoint,
    Moment,
    read_checkpoint,
)
from edl_master.adapters.checkpoints import CheckpointStorage
from edl_master.adapters.data import DataSet
from edl_master.adapters.job_directory import LastSeen
from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.core.effects import LogEvent, Severity
from edl_master.core.identifiers import (
    NO_COUNTS,
    ParameterCounts,
    TaskKey,
    TaskType,
    Version,
    WorkerId,
)
from edl_master.core.interruption import Interruption, WorkersSeen
from edl_master.core.job import JobStateMachine
from edl_master.core.job_snapshot import mixing_of
from edl_master.core.parameters.applied_counts import AppliedCounts
from edl_master.core.parameters.shard_layout import SavedParameters
from edl_master.core.parameters.snapshot import Snapshot, Stored
from edl_master.core.settings import JobSettings, JobType
from edl_proto.errors import EdlError, ErrorCode

log = logging.getLogger(__name__)


class _Names(TypedDict):
    data_names: Sequence[str]
    validation_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """A new or restored job.

    Attributes:
        job: new, or as it was.
        resumed: whether it is as it was.
        saved: the parameters as they were; None for a new job, and where there are none.
        notes: what users should know of it.
        path: of the checkpoint; None for a new job.
        data: the description of the data that was read until then; empty if there is none.
    """

    job: JobStateMachine
    resumed: bool
    saved: SavedParameters | None
    notes: tuple[LogEvent, ...]
    path: Path | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> Version | None:
        """Parameter version that it continues from; None for a new job."""
        return Version(self.saved.coordinator.meta["version"]) if self.saved else None


def restore_job(
    settings: JobSettings,
    data: DataSet,
    validation: DataSet | None,
    places: Sequence[CheckpointStorage],
    predictions: PredictionOutput | None = None,
    *,
    store: CheckpointStorage | None = None,
    chosen_length: bool,
    last_seen: LastSeen | None = None,
) -> RestoredJob:
    """Build a new job, or restore it from its newest complete checkpoint.

    Args:
        settings: of the job.
        data: to train, evaluate or predict on.
        validation: to evaluate on; None: no evaluation.
        places: where snapshots and checkpoints are; the newest of all is used.
        store: of checkpoints, where these have none.
        predictions: parts that an earlier master took; brought in line with the job.
        chosen_length: the length of tasks was chosen here, and yields to that of the checkpoint.
        last_seen: the last sign of the earlier master; None if
            this is not the same job, started again, but another one that continues from its state.

    Raises:
        EdlError: CHECKPOINT_DAMAGED; DATA_NOT_FOUND or DATA_DAMAGED when the data has changed;
            USAGE when the checkpoint is of other data or settings;
            OUTPUT_UNWRITABLE or DISK_FULL for the parts, or for what a store has.
    """
    counts = validation.counts if validation else ()
    names: _Names = {
        "data_names": data.names,
        "validation_names": validation.names if validation else (),
    }
    notes: list[LogEvent] = []

    def note_damage(name: str, problem: str) -> None:
        message = f"Checkpoint {name} is damaged and was skipped: {problem}."
        notes.append(LogEvent("CheckpointDamaged", message, Severity.WARNING))

    def anew() -> RestoredJob:
        if predictions is not None:
            predictions.prepare()
        # Workers of a training job that is restarted are ended: they have trained.
        keeps_workers = settings.type is not JobType.TRAIN
        seen = _workers_seen(last_seen, running=keeps_workers) if last_seen else None
        job = JobStateMachine(
            settings, data.counts, counts, **names, interruption=Interruption(workers=seen)
        )
        return RestoredJob(job, resumed=False, saved=None, notes=tuple(notes))

    found = _newest(places, store, note_damage)
    if found is None:
        return anew()
    ledger, plane = found.documents[LEDGER], found.documents.get(PLANE)
    try:
        if chosen_length:
            settings = replace(settings, records_per_task=ledger["job"]["records_per_task"])
        # The tasks of the running epoch stay what they are.
        settings = replace(settings, mixing=mixing_of(ledger))
        interruption = _interruption(found, ledger["progress"]["elapsed_s"], last_seen)
        job = JobStateMachine.restore(
            settings,
            data.counts,
            counts,
            ledger,
            ParameterCounts(
                Version(plane["version"]), AppliedCounts.counts_of_description(plane["applied"])
            )
            if plane
            else NO_COUNTS,
            **names,
            interruption=interruption,
        )
    except (ValueError, KeyError, TypeError) as error:
        data.check_unchanged(found.documents.get(DATA, {}))
        raise EdlError(
            ErrorCode.USAGE,
            f"the job cannot continue from its checkpoint: {error}",
            where=f"--checkpoint-dir, checkpoint {found.name}",
            remedy="Use the data and options that it was made with, or another directory or name.",
        ) from error
    if predictions is not None and not _has_parts(job, predictions):
        message = f"Parts of predictions that {found.name} counts as done are missing;"
        message += " all predictions are computed again."
        notes.append(LogEvent("PredictionsMissing", message, Severity.WARNING))
        return anew()
    at = f", parameter version {plane['version']}" if plane else ""
    message = f"Continues from checkpoint {found.name}{at}."
    if last_seen is not None:
        unless = ", unless workers still hold the result" if settings.replicated else ""
        message += f" {interruption.undone_s:.1f} s of work after it are done again{unless}."
    notes.append(LogEvent("CheckpointRestored", message, facts={"checkpoint": found.name}))
    saved = None
    if plane:
        saved = SavedParameters(_snapshot(found), tuple(_snapshot(part) for part in found.parts))
    described = found.documents.get(DATA, {})
    return RestoredJob(job, True, saved, tuple(notes), found.path, described)


def parts_of(path: Path) -> tuple[Snapshot, ...]:
    """Return the parameters in a whole checkpoint: one snapshot for each part, or a single one."""
    found = read_checkpoint(path)
    return tuple(_snapshot(part) for part in found.parts or (found,))


def _snapshot(found: Checkpoint) -> Snapshot:
    arrays: dict[str, Stored] = {name: np.asarray(array) for name, array in found.arrays.items()}
    return Snapshot(found.documents[PLANE], arrays)


def _has_parts(job: JobStateMachine, predictions: PredictionOutput) -> bool:
    """Return whether all counted predictions are there, and remove those not counted."""
    counts = job.view(0.0).tasks.get(TaskType.PREDICTION)
    return predictions.resume(
        lambda number: job.is_settled(TaskKey(TaskType.PREDICTION, 0, number)),
        counts.dead if counts else 0,
    )


def _newest(
    places: Sequence[CheckpointStorage],
    store: CheckpointStorage | None,
    on_damaged: Callable[[str, str], None],
) -> Checkpoint | None:
    """Find the newest whole checkpoint of all places; raise if all that exist are damaged.

    A store is asked only if there is nothing on this machine: what is there is the job's own, some
    seconds older at most, and the workers of a master that was killed are waiting.
    """
    found: list[Checkpoint] = []
    problems: list[EdlError] = []
    for place in (*places, *([store] if store else ())):
        if place is store and found:
            break
        try:
            newest = place.newest(on_damaged)
        except EdlError as error:
            problems.append(error)
        else:
            found += [newest] if newest else []
    if not found and problems:
        raise problems[0]
    return max(found, key=_version, default=None)


def _version(checkpoint: Checkpoint) -> int:
    """Return the version of its parameters; jobs on a trained model have none."""
    plane = checkpoint.documents.get(PLANE)
    return int(plane["version"]) if plane else 0


def _interruption(found: Checkpoint, elapsed_s: float, last: LastSeen | None) -> Interruption:
    undone_s, down_s = _measure_loss(found, elapsed_s, last)
    if last is None:
        return Interruption(undone_s, down_s)
    records = (last.records_trained, last.records_replayed)
    return Interruption(undone_s, down_s, records, _workers_seen(last))


def _workers_seen(last: LastSeen, *, running: bool = True) -> WorkersSeen:
    found = {WorkerId(number): attempt for number, attempt in last.running.items()}
    return WorkersSeen(last.preemptions, last.worker_failures, found if running else {})


def _measure_loss(
    found: Checkpoint, elapsed_s: float, last: LastSeen | None
) -> tuple[float, float]:
    """Return the seconds of work that are undone, and seconds without a master.

    The clocks are monotonic, unless the machine was restarted in between.

    Args:
        elapsed_s: age of the job in the checkpoint.
        last: the last sign of the master that failed.
    """
    if last is None:
        return 0.0, 0.0
    undone_s = max(0.0, last.job_s - elapsed_s)
    now = Moment.now()
    if found.taken.boot == now.boot:
        since_s = (now.since_boot_ns - found.taken.since_boot_ns) / 1e9
        return undone_s, max(0.0, since_s - undone_s)
    return undone_s, max(0.0, time.time() - last.at_s)
