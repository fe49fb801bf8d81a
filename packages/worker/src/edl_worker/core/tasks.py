"""Tasks and leases as the worker knows them, and what it reports about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, TypeAlias

import numpy.typing as npt

from edl_proto.printable import one_line


class TaskType(Enum):
    """The kinds of tasks, by what they do with their records."""

    TRAINING = auto()
    EVALUATION = auto()
    EVALUATION_SUMMARY = auto()
    """Turn the merged metric states into values."""
    PREDICTION = auto()
    EXPORT = auto()
    """Write the trained model."""
    CALLBACKS = auto()
    """Call the model file's Keras callbacks between two epochs."""

    @property
    def label(self) -> str:
        """The name in logs and metrics."""
        return self.name.lower()


class WorkerPhase(Enum):
    """The phase that the worker is in; heartbeats report it."""

    LOADING = auto()
    IDLE = auto()
    COMPUTING = auto()
    EXCHANGING = auto()
    WAITING = auto()
    LEAVING = auto()


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The identity of a task, the same however often the task is leased.

    Attributes:
        round: epoch of a training task, number of an evaluation.
        number: in the order of the data.
    """

    type: TaskType
    round: int
    number: int

    def __str__(self) -> str:
        return f"{self.type.label}/{self.round}/{self.number}"


@dataclass(frozen=True, slots=True)
class LeaseRef:
    """A task together with the fencing token under which a worker holds it."""

    task: TaskKey
    token: int


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records ``start`` to ``stop`` of one file.

    Attributes:
        block_first_record: first record of a block at or before ``start``.
        block_offset: byte at which this block starts.
        columns: names of the columns of a CSV file.
        version: that a file in a store must have.
        end_offset: the byte after the last block of the range.
        block_stop_record: the record after that block.
    """

    uri: str = ""
    format: str = ""
    start: int = 0
    stop: int = 0
    block_first_record: int = 0
    block_offset: int = 0
    columns: tuple[str, ...] = ()
    version: str = ""
    end_offset: int = 0
    block_stop_record: int = 0


@dataclass(frozen=True, slots=True)
class MetricState:
    """The values of a metric's state variables; states of different tasks add up."""

    name: str
    variables: tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class ExportInfo:
    """The master's knowledge about the model to export.

    Attributes:
        crashes: workers that ended by themselves while they wrote it.
        data: a description of the training data, opaque to workers.
    """

    parameter_version: int = 0
    records_trained: int = 0
    epochs: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    crashes: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class EpochLogs:
    """The input of a call of the callbacks: the epoch, and the state from the previous call.

    Attributes:
        state: what the last call returned.
        logs: of the epoch that has ended.
        learning_rate: what callbacks have set; None: the optimizer's own.
        train_end: the model has its last values: only ``on_train_end`` is called.
        epoch_begin: the job has more epochs than it had: only ``on_epoch_begin`` is called.
    """

    state: bytes = b""
    logs: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float | None = None
    train_end: bool = False
    epoch_begin: bool = False


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """The decisions of the callbacks.

    Attributes:
        state: what they remember; opaque to the master.
        stopped_by: the callback that ends the training; empty: it continues.
        learning_rate: from now on; None: as before.
        keep_best: the present values are the best so far.
        restore_best: training ends, and the best values become the model.
        warnings: what other workers do not get.
    """

    state: bytes
    stopped_by: str = ""
    learning_rate: float | None = None
    keep_best: bool = False
    restore_best: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """A task that this worker holds.

    Attributes:
        records: of training, evaluation and prediction tasks; several ranges if the master has
            mixed the tasks of an epoch.
        skip_minibatches: minibatches that an earlier holder has brought into the model.
        seed: of the task's input pipeline.
        frozen: name of the frozen version to use; empty: the values of the trained model.
        metric_states: of an evaluation summary, merged.
        part_path: where a prediction or export task writes; no other worker writes there.
        export: of an export task.
        callbacks: of a call of the callbacks.
        learning_rate: of a training task with local steps; None: the optimizer's own.
        shuffled: the records come in a random order that the seed decides.
    """

    task: TaskKey
    token: int
    records: tuple[RecordRange, ...] = ()
    skip_minibatches: int = 0
    seed: int = 0
    frozen: str = ""
    metric_states: tuple[MetricState, ...] = ()
    part_path: str = ""
    export: ExportInfo = field(default_factory=ExportInfo)
    callbacks: EpochLogs = field(default_factory=EpochLogs)
    learning_rate: float | None = None
    shuffled: bool = False

    @property
    def ref(self) -> LeaseRef:
        return LeaseRef(self.task, self.token)

    @property
    def record_count(self) -> int:
        """The number of records of the task."""
        return sum(part.stop - part.start for part in self.records)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, if the records are rows of CSV."""
        return next((part.columns for part in self.records if part.columns), ())

    def joined_ranges(self) -> list[RecordRange]:
        """Return the records with ranges that follow each other joined, to name them."""
        joined: list[RecordRange] = []
        for part in self.records:
            last = joined[-1] if joined else None
            if last is not None and (last.uri, last.stop) == (part.uri, part.start):
                joined[-1] = replace(last, stop=part.stop)
            else:
                joined.append(part)
        return joined

    def __str__(self) -> str:
        """Return the task for a log: ``training 1/17 file.rec[640:1280]``."""
        text = f"{self.task.type.label} {self.task.round}/{self.task.number}"
        ranges = self.joined_ranges()
        if ranges:
            first = ranges[0]
            name = one_line(first.uri.rsplit("/", 1)[-1])
            text += f" {name}[{first.start}:{first.stop}]"
        if len(ranges) > 1:
            text += f" and {len(ranges) - 1} other ranges"
        return text


@dataclass(frozen=True, slots=True)
class Wait:
    """The answer that there is no task now, for this reason; ask again."""

    retry_in_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """The answer that there is no further task for this worker."""

    reason: str


LeaseAnswer: TypeAlias = Lease | Wait | Leave


@dataclass(slots=True)
class TaskResult:
    """The result of a completed task.

    Attributes:
        minibatches: of the whole task, skipped ones included.
        records: records read, or predictions written.
        examples: elements that the dataset function made of the records; 0 in training, where
            the master counts them.
        metric_states: of an evaluation task.
        metrics: of an evaluation summary.
        warnings: what the trained model of an export task lacks, and why; or of callbacks.
        callbacks: of a call of the callbacks.
    """

    records: int = 0
    minibatches: int = 0
    examples: int = 0
    metric_states: tuple[MetricState, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    callbacks: CallbackResult | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The master's reply to a heartbeat.

    Attributes:
        lost: leases that this worker no longer holds.
        leave_reason: why the worker has to leave; None: it stays.
        wants_stacks: the next heartbeat should carry the stacks of all threads.
    """

    lost: tuple[LeaseRef, ...]
    leave_reason: str | None
    wants_stacks: bool


class TaskLostError(Exception):
    """The worker no longer holds the task; nothing is left to do for it."""


class OutOfOrderError(Exception):
    """Worker and master disagree about the next minibatch of the task."""


class MasterReplacedError(Exception):
    """The master is another incarnation than the one this worker registered with."""
