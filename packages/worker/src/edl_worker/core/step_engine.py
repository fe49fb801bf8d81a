"""The ports to the framework that computes on models, such as TensorFlow.

A ``Framework`` loads the model of a job as a ``ModelEngine``, which makes minibatches, infers and
measures. If the job trains, the model has a ``StepEngine``, which holds values and changes them.
The tests have a suite for engines; an engine that passes it can do all tasks of a worker.

Tensors of minibatches, outputs and rows are the engine's own. Everything outside only passes them
on, or reads them as arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edl_worker.core.batch import Batch, Blocks
from edl_worker.core.job import JobDescription, WirePrecision
from edl_worker.core.layer_state import LayerState
from edl_worker.core.layout import PayloadLayout
from edl_worker.core.model_description import ModelDescription, VariableDescription
from edl_worker.core.row_engine import RowEngine, RowRequest
from edl_worker.core.tasks import CallbackResult, EpochLogs
from elasticdl.python.common.constants import Mode


@dataclass(frozen=True, slots=True)
class StepResult:
    """The content of one push: the result of one minibatch, or of several local steps.

    Attributes:
        gradient: bytes of the trainable groups, in wire order.
        state_delta: bytes of the state groups; empty when training changes no state.
        loss: of the minibatch, regularization included; of local steps the mean over records.
        rows: bytes of the gradients of rows, in the order of the ``RowRequest``.
        precision: of gradient and rows; float32 if a number overflows in 16 bits.
        has_finite_gradient: False if replicas must not use the gradient.
    """

    gradient: tuple[memoryview, ...]
    state_delta: tuple[memoryview, ...]
    loss: float
    rows: memoryview = field(default_factory=lambda: memoryview(b""))
    precision: WirePrecision = WirePrecision.FLOAT32
    has_finite_gradient: bool = True

    @property
    def is_finite(self) -> bool:
        """Whether the loss is finite, and the gradient as far as that is known."""
        return math.isfinite(self.loss) and self.has_finite_gradient


@dataclass(frozen=True, slots=True)
class ExportForm:
    """A form of the trained model, which the model may lack.

    Attributes:
        file: name of the file or folder.
        save: writes it to a path that does not exist yet.
        check: raises what ``save`` would raise, as far as that is known before training; takes
            whether it may take as long as tracing a step.
        failure: what it means that ``save`` fails, as the beginning of a sentence.
        limits: yields sentences on what hinders others from using the form; takes the same as
            ``check``.
        is_required: users ask for it, so a job is refused if ``check`` raises.
    """

    file: str
    save: Callable[[Path], object]
    check: Callable[[bool], object]
    failure: str
    limits: Callable[[bool], Iterable[str]] = lambda thorough: ()
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A summary of a model file, for reports and error messages.

    Attributes:
        form: how the model was written.
        parameters: trainable numbers; None if only data can show it.
        inputs: name, shape and dtype of each input; None if only data can show them.
        metrics: ``loss`` and the model file's metrics.
        output_names: of a model with several outputs.
        loss_place: file, line and name of the loss; empty if there is none.
        input_place: file, line and name of the input function.
        input_shapes: a nest of what has dtype and shape, as the model takes it; None: unknown.
        warnings: what is not wrong in the model file, but hardly meant, or may become wrong.
        replicated: whether workers that train it hold all values; None: only data can show it.
        activations: of the outputs, where they are known.
    """

    form: str
    name: str
    parameters: int | None
    inputs: list[dict[str, Any]] | None
    metrics: tuple[str, ...]
    output_names: tuple[str, ...] = ()
    loss_place: str = ""
    input_place: str = ""
    input_shapes: Any = None
    warnings: tuple[str, ...] = ()
    replicated: bool | None = None
    activations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """The state of the master's optimizer: its updates so far, and its slots by name.

    A slot is in the layout of the values, and has a meaning in its trainable groups only. A rate
    of None is the optimizer's own.
    """

    updates: int
    learning_rate: float | None
    slots: Mapping[str, npt.NDArray[np.uint8]]


class StepEngine(Protocol):
    """The values of a model, and the steps that compute on them or change them."""

    @property
    def layout(self) -> PayloadLayout[VariableDescription]:
        """The layout of the values in a payload."""

    @property
    def precision(self) -> WirePrecision:
        """The precision in which gradients and newer values should be sent."""

    @property
    def tables(self) -> RowEngine | None:
        """The embedding tables of the model; None if it has none."""

    def describe(self) -> ModelDescription:
        """Return the model as the master needs to know it."""

    def trace(self, batch: Batch, *, local: bool) -> None:
        """Trace ``step`` if it is local, or else ``gradient``, for minibatches like this one.

        One trace is for all sizes.
        """

    def gradient(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None
    ) -> StepResult:
        """Return the gradient of the loss of a minibatch at the present values.

        The values stay as they are, also the state that training changes without a gradient.

        Args:
            batch: the minibatch.
            wanted: the rows that it needs of the model's embedding tables, if there are any.
            rows: their numbers, float32 of shape (n,), one row after the other.
        """

    def step(self, batch: Batch) -> float:
        """Update the values with the model's own optimizer; return the loss.

        Nothing changes if that is not finite. It is NaN for a gradient that the optimizer refuses.
        """

    def place_optimizer(self, version: int, learning_rate: float | None) -> None:
        """Set where the optimizer of ``step`` stands.

        Args:
            version: how many minibatches the values have had.
            learning_rate: what callbacks have set; None: the optimizer's own.
        """

    def encode(self, gradient: Sequence[Any]) -> tuple[tuple[memoryview, ...], WirePrecision]:
        """Return flat arrays of the trainable groups as they are sent, and their precision."""

    def pack(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the present values as one payload of the layout."""

    def assign(
        self, payload: npt.NDArray[np.uint8], precision: WirePrecision = WirePrecision.FLOAT32
    ) -> None:
        """Give the model the values of a payload, which is copied.

        Args:
            payload: the values.
            precision: of the payload; that of the job, or float32.
        """

    def call_callbacks(self, ended: int, call: EpochLogs) -> CallbackResult:
        """Call the callbacks of the model file between two epochs.

        Args:
            ended: epochs that are over; 0: the training begins.
            call: what the call before has left.

        Raises:
            EdlError: MODEL_CONTRACT, they do what they must not.
        """

    def named_values(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return a copy of all present numbers by name, also of those that are not sent."""

    def layer_states(self) -> Sequence[LayerState]:
        """Return the state of layers that is not among these numbers, such as vocabularies."""

    @property
    def exported_slots(self) -> Sequence[str] | None:
        """The optimizer's slots that an exported model has; None: it has no optimizer."""

    def export_forms(self, optimizer: OptimizerState | None = None) -> Sequence[ExportForm]:
        """Return the forms, besides its values, in which the model can be exported.

        Their optimizer continues from the state; without one they have none.
        """


class Metrics(Protocol):
    """The metrics of some records; states of different records add up."""

    def add(self, batch: Batch, infer: Callable[[Batch], Any]) -> None:
        """Count a minibatch."""

    def states(self) -> list[tuple[str, list[npt.NDArray[Any]]]]:
        """Return the values of each metric's state variables."""

    def load(self, states: list[tuple[str, list[npt.NDArray[Any]]]]) -> None:
        """Replace the states by a sum of states."""

    def result(self) -> Mapping[str, Any]:
        """Return the values of the metrics."""


class BatchSource(Protocol):
    """A source of minibatches, made of records as a model file says."""

    @property
    def reads_records(self) -> bool:
        """Whether the model file reads the data by itself."""

    def blocks(self, uri: str, start: int, stop: int, read: Blocks) -> Blocks:
        """Return how to read some records: the model file's own reader of data, if it has one.

        Args:
            uri: file of the records ``start`` to ``stop``.
            read: how edl would read them.
        """

    def batches(
        self,
        blocks: Blocks,
        *,
        mode: Mode,
        minibatch_size: int,
        seed: int,
        skip: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """Return the minibatches of one task, the same ones for the same records and seed.

        Close the iterator (``.close()``) if you leave it before its end.

        Args:
            blocks: the records of the task.
            skip: number of minibatches to leave out at the start.
            columns: names of the columns if the records are CSV rows.

        Raises:
            EdlError: from ``next``: the data or the model file has an error.
        """


class ModelEngine(Protocol):
    """A model whose contract has been checked, ready for the tasks of its job."""

    @property
    def zoo(self) -> Path:
        """The root of the model zoo, for places in error messages."""

    @property
    def sample(self) -> Batch:
        """The first minibatch of the job's data."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the framework's packages, by name."""

    @property
    def source(self) -> BatchSource:
        """The source of minibatches."""

    @property
    def steps(self) -> StepEngine | None:
        """The values and steps of a training job; None in others."""

    @property
    def has_call(self) -> bool:
        """Whether the model can be called; one with steps of its own may only call its parts."""

    def summarize(self) -> ModelSummary:
        """Return what the model file has."""

    def infer(self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None) -> Any:
        """Return the model's outputs, or predictions in a prediction job; a nest of tensors."""

    def process_outputs(self, outputs: Any, worker_id: int) -> None:
        """Give the outputs of a minibatch to the model file, if it wants them."""

    def new_metrics(self) -> Metrics:
        """Return metrics that have counted nothing yet."""

    def preserve_state(self) -> AbstractContextManager[None]:
        """Return a context that undoes what steps do to variables that are not sent."""


class Profiler(Protocol):
    """A profiler of some steps of this worker."""

    def begin_step(self) -> None:
        """Note that the next step begins, so the one before has ended."""


class Framework(Protocol):
    """A framework, chosen by the composition root; nothing is imported before ``prepare``."""

    def prepare(self) -> None:
        """Import the framework and all code that needs it, which takes seconds."""

    def load(self, job: JobDescription, context: Mapping[str, Any]) -> ModelEngine:
        """Load the model file of a job and check the whole contract.

        Args:
            job: of any type, with data.
            context: ``job``, ``worker_id`` and ``master``, for model files that ask for it.

        Raises:
            ContractErrors: everything that is wrong with the model file.
            EdlError: the data or the trained model cannot be read, or do not fit the model.
        """

    def check(self, job: JobDescription) -> ModelSummary:
        """Check the definitions of a model file, without data.

        Raises:
            ContractErrors: everything that is wrong with them.
        """

    def search_space(self, job: JobDescription) -> list[dict[str, Any]]:
        """Return the hyperparameters that the model file asks for, ready for JSON.

        Raises:
            EdlError: the model cannot be built.
        """

    def profiler(self, first: int, last: int, send: Callable[[bytes], None]) -> Profiler:
        """Return what profiles the steps from ``first`` to ``last``.

        Args:
            first, last: numbers of steps, counted from 1; both are profiled.
            send: takes the finished profile, an XSpace, gzipped.
        """
