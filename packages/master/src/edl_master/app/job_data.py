"""The data of a job: complete files, or a stream of them, and the files of its evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edl_master.adapters.data import DataSet, open_data
from edl_master.adapters.data_comparison import ComparedData, compare_data
from edl_master.adapters.split_log import SplitLog
from edl_master.adapters.stream_source import StreamSource, open_stream
from edl_master.config.job_config import Config
from edl_master.core.effects import LeaseGranted
from edl_master.core.identifiers import TaskType
from edl_master.core.settings import JobType
from edl_master.core.windows import Split
from edl_master.recovery.restore import RestoredJob
from edl_proto.v1 import task_pb2
from edl_runtime.local import job_directory


@dataclass(frozen=True, slots=True)
class JobData:
    """The data that a job works on.

    Attributes:
        main: to train, evaluate or predict on; no file, if that is a stream.
        stream: to train on; None, if the data is complete.
        validation: of evaluations during training; None: there are none.
        compared: the columns or features of all data.
    """

    main: DataSet
    stream: StreamSource | None
    validation: DataSet | None
    compared: ComparedData

    def locate(self, lease: LeaseGranted) -> list[task_pb2.RecordRange]:
        """Return the files and records of a lease; none for tasks without records."""
        if self.stream is not None and lease.task.type is TaskType.TRAINING:
            return self.stream.locate(lease.records)
        return self._data_of(lease.task.type).locate(lease.records)

    @property
    def sample(self) -> tuple[bytes, ...]:
        """The first records of a stream; none if the data is complete."""
        return self.stream.sample if self.stream is not None else ()

    @property
    def files(self) -> Mapping[TaskType, Sequence[str]]:
        """Names of the files that tasks of each type read."""
        names = {type_: self._data_of(type_).names for type_ in TaskType}
        return names if self.stream is None else {**names, TaskType.TRAINING: self.stream.names}

    def _data_of(self, type_: TaskType) -> DataSet:
        if type_ is TaskType.EVALUATION and self.validation is not None:
            return self.validation
        return self.main

    def continue_from(self, restored: RestoredJob) -> tuple[Split, ...]:
        """Check that the data is what an earlier master has read of it.

        Returns:
            The splits of a stream that are not trained, also those that the job does not know yet.

        Raises:
            EdlError: DATA_NOT_FOUND or DATA_DAMAGED.
        """
        position = restored.job.stream
        if self.stream is None or position is None:
            self.main.check_unchanged(restored.data)
            return ()
        return self.stream.reopen(position.oldest_split, position.next_split)


def open_job_data(config: Config) -> JobData:
    """Open the data of a job.

    Raises:
        EdlError: the data cannot be used.
    """
    spec, validation = config.spec, None
    if config.type is JobType.TRAIN and spec.validation_data:
        validation = open_data(spec.validation_data, spec.data_format, "--validation-data")
    if config.is_stream:
        # The first file, which described the fields of an exported model's data, may be gone.
        place = Path(spec.export.snapshots).parent if spec.export.job else config.job_dir
        log = SplitLog(place / job_directory.SPLITS)
        stream = open_stream(
            spec.data,
            spec.data_format,
            log,
            allow_gaps=spec.failures.allow_gaps,
            allow_dead_letters=spec.failures.allow_dead_letters,
        )
        return JobData(DataSet(()), stream, validation, stream.compare(validation))
    main = open_data(spec.data, spec.data_format, "--data")
    compared = compare_data(
        config.type, main, validation, spec.trained_model, spec.training.init_from
    )
    return JobData(main, None, validation, compared)
