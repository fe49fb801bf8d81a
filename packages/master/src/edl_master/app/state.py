"""Stage 1 of the composition: the data, files and position that a job works on.

Everything here is checked before any worker starts: the data is there, the output can be written,
and the job is new or restored from its newest snapshot or checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from edl_master.adapters import prediction_tables
from edl_master.adapters.checkpoints import CheckpointStorage, LocalCheckpoints
from edl_master.adapters.data import DataSet
from edl_master.adapters.event_log import EventLog
from edl_master.adapters.export_output import ExportOutput
from edl_master.adapters.job_directory import JobDirectory
from edl_master.adapters.job_output import JobOutput, check_output
from edl_master.adapters.output_reservation import OutputReservation
from edl_master.adapters.part_files import AS_PARTS, OutputFormat
from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.adapters.stored_checkpoints import ObjectStoreCheckpoints
from edl_master.app.job_data import JobData, open_job_data
from edl_master.config.job_config import Config
from edl_master.core.effects import LogEvent, Severity
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.tasks import TaskPartition
from edl_master.core.windows import Split
from edl_master.recovery.restart import is_rollback
from edl_master.recovery.restore import RestoredJob, restore_job
from edl_master.reporting.job_settings import CODE
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory, output_reservation
from edl_runtime.timestamps import rfc3339
from recordio.storage.stores import is_uri

_SNAPSHOTS_KEPT = 2
"""One to use, and one if that is damaged."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a job keeps its position and its result.

    Attributes:
        snapshots: for the next master of this job.
        checkpoints: for other jobs too; None: the job keeps none.
        output: of prediction and export tasks; None for jobs without files as their result.
    """

    snapshots: LocalCheckpoints
    checkpoints: CheckpointStorage | None
    output: JobOutput | None

    def flush_output(self) -> None:
        """Return when the files of every completed task are in their place."""
        if self.output is not None:
            self.output.flush()

    def finish_output(self, dead_tasks: int) -> None:
        """Make the result from the files of all tasks but those that were dead-lettered."""
        assert self.output is not None, "only a job with files as its result has an output"
        self.output.finish(dead_tasks)


@dataclass(frozen=True, slots=True)
class MasterState:
    """The files and the job that the first stage of the start has opened.

    Attributes:
        settings: of the job's core.
        event_log: the job's events.
        data: that the job works on.
        splits: of its stream, which the job trains on or does not know yet.
        storage: where position and result are kept.
        restored: the job, new or restored.
        keeps_workers: instances of an earlier master may continue: they have the job's state.
        started_at: RFC 3339; when the job's first master started.
        restarts: how often a master took over from one that had not ended the job.
    """

    settings: JobSettings
    event_log: EventLog
    data: JobData
    splits: tuple[Split, ...]
    storage: Storage
    restored: RestoredJob
    keeps_workers: bool
    started_at: str
    restarts: int


def open_state(
    config: Config, directory: JobDirectory, incarnation: str, opened: ExitStack
) -> MasterState:
    """Open data and storage, and build or restore the job.

    Raises:
        EdlError: the data, the output or the checkpoints cannot be used.
    """
    spec, trains = config.spec, config.type is JobType.TRAIN
    last, last_seen = directory.read_status(), directory.last_seen()
    started_at = last.started_at or rfc3339(time.time())
    directory.remove_drafts()
    directory.reserve()
    event_log = EventLog(config.job_dir / job_directory.EVENTS)
    data = open_job_data(config)
    mixing = None if data.stream else data.main.choose_mixing
    settings = config.job_settings(data.main.records, mixing)
    settings = replace(settings, incarnation=incarnation)
    output = _open_output(config, directory, data.main, settings.records_per_task, incarnation)
    if output is not None:
        reservation = OutputReservation(config.output, config.job_dir)
        opened.callback(reservation.close)
        reservation.hold()
    snapshots, checkpoints = _open_checkpoints(config)
    for storage in (checkpoints, snapshots):
        if storage is not None:
            opened.callback(storage.close)
    sources: Sequence[CheckpointStorage] = [snapshots]
    in_store = checkpoints if config.checkpoint_store else None
    if spec.export.job:
        sources, in_store = _exported_state(config)
    elif checkpoints is not None and in_store is None:
        sources = [snapshots, checkpoints]
    restored = restore_job(
        settings,
        data.main,
        data.validation,
        sources,
        output if isinstance(output, PredictionOutput) else None,
        store=in_store,
        chosen_length=not spec.records_per_task,
        last_seen=None if spec.export.job else last_seen,
    )
    restored = replace(restored, notes=(*restored.notes, *_note_new_code(spec.model.code, last)))
    if spec.export.job and not restored.resumed:
        raise _nothing_to_export(spec.export)
    splits = () if spec.export.job else data.continue_from(restored)
    return MasterState(
        settings=settings,
        event_log=event_log,
        data=data,
        splits=splits,
        storage=Storage(snapshots, checkpoints, output),
        restored=restored,
        # A training job that starts again needs workers that have not trained yet.
        keeps_workers=restored.resumed or not trains,
        started_at=started_at,
        restarts=last.master_restarts + (last_seen is not None and not is_rollback()),
    )


def _note_new_code(code: job_pb2.ModelCode, last: job_pb2.JobStatus) -> list[LogEvent]:
    """Return the event of a job that was resumed with other code than the last master had."""
    if not code.change or last.settings.get(CODE) == code.sha256:
        return []
    message = f"Continues with new code of the model, {code.sha256[:12]}: {code.change}."
    return [LogEvent("CodeReplaced", message, Severity.WARNING, facts={"code": code.sha256})]


def clear_up(config: Config, status: job_pb2.JobStatus) -> None:
    """Remove what is not needed after the end: a job with a result is not continued.

    Neither the data nor an open job is needed: the master that ended the job may have failed here.
    """
    succeeded = status.state == job_pb2.SUCCEEDED
    if succeeded:
        _snapshots(config).clear()
    if config.type is JobType.PREDICT:
        _predictions(config, (), TaskPartition((), 1), "", AS_PARTS).clear(succeeded)
    elif config.type is JobType.TRAIN and config.output:
        ExportOutput(config.output, config.model_of, "").clear(succeeded)
    if config.output:
        output_reservation.release(config.output, config.job_dir)


def _snapshots(config: Config) -> LocalCheckpoints:
    places = config.job_dir / job_directory.SNAPSHOTS
    return LocalCheckpoints(places, config.spec.name, _SNAPSHOTS_KEPT)


def _predictions(
    config: Config,
    uris: Sequence[str],
    partition: TaskPartition,
    incarnation: str,
    form: OutputFormat,
) -> PredictionOutput:
    """Return the output of a prediction job, and where its workers write their parts.

    Pods share no folder of the job with their master, but the place of the output: a volume or a
    store.
    """
    name, output = config.spec.name, config.output
    parts, staging = config.job_dir / job_directory.PARTS, ""
    if config.spec.platform == "kubernetes":
        parent, _, last = output.rstrip("/").rpartition("/")
        place = f"{parent}/.{last}.edl-{name}.parts"
        if is_uri(output):
            staging = place
        else:
            parts = Path(place)
    return PredictionOutput(parts, name, output, uris, partition, incarnation, form, staging)


def _open_output(
    config: Config,
    directory: JobDirectory,
    data: DataSet,
    records_per_task: int,
    incarnation: str,
) -> JobOutput | None:
    """Open the job's output, and make sure that it can be written."""
    output: JobOutput | None = None
    begun = False
    if config.type is JobType.PREDICT:
        partition = TaskPartition(data.counts, records_per_task)
        form = config.output_format(typed=data.is_table)
        prediction_tables.check_installed(form.name)
        predictions = _predictions(config, data.uris, partition, incarnation, form)
        output, begun = predictions, predictions.is_begun
    elif config.type is JobType.TRAIN and config.output:
        output = ExportOutput(config.output, config.model_of, incarnation)
    if output is not None and not begun:
        # A model of the job itself, such as one that was exported before it continued, is replaced.
        export = config.spec.export
        replaces = (directory / job_directory.MASTER).exists() or export.overwrite
        check_output(
            config.output,
            resumed_job=config.model_of if replaces else "",
            remedy=_overwrite_remedy(export.job) if export.job and not replaces else "",
        )
    return output


def _overwrite_remedy(job: str) -> str:
    return f"Choose another --output; --overwrite replaces a model that {job} has written there."


def _open_checkpoints(config: Config) -> tuple[LocalCheckpoints, CheckpointStorage | None]:
    """Open the storage of snapshots, and that of checkpoints if the job keeps any."""
    name = config.spec.name
    snapshots = _snapshots(config)
    snapshots.prepare()
    if config.checkpoint_dir is None or config.type is not JobType.TRAIN or config.spec.export.job:
        return snapshots, None
    if config.checkpoint_store:
        stored = ObjectStoreCheckpoints(
            config.checkpoint_store, name, config.keep_checkpoints, config.checkpoint_dir
        )
        stored.prepare(now=not snapshots.names())
        return snapshots, stored
    checkpoints = LocalCheckpoints(config.checkpoint_dir, name, config.keep_checkpoints)
    checkpoints.prepare()
    return snapshots, checkpoints


def _exported_state(config: Config) -> tuple[list[CheckpointStorage], CheckpointStorage | None]:
    """Return snapshots and checkpoints of the exported model's job, which are only read."""
    source, name = config.spec.export, config.spec.export.job
    snapshots = LocalCheckpoints(Path(source.snapshots), name, _SNAPSHOTS_KEPT)
    if config.checkpoint_dir is None:
        return [snapshots], None
    if config.checkpoint_store:
        return [snapshots], ObjectStoreCheckpoints(
            config.checkpoint_store, name, config.keep_checkpoints, config.checkpoint_dir
        )
    return [snapshots, LocalCheckpoints(config.checkpoint_dir, name, config.keep_checkpoints)], None


def _nothing_to_export(source: job_pb2.ExportSpec) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_NOT_FOUND,
        f"job {source.job} has no snapshot and no checkpoint to export",
        where=source.snapshots,
        remedy="The first snapshot is taken a few seconds after training begins; after success the"
        " model is in the job's output.",
    )
