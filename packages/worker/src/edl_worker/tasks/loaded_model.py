"""The model of a job, with everything that its tasks need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from edl_worker.core.batch import Batch
from edl_worker.core.job import JobDescription
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import Framework, ModelEngine, StepEngine
from edl_worker.core.tasks import Lease, RecordRange, TaskType
from edl_worker.model_file.bad_records import Records, explain_bad_records, place_by_number
from edl_worker.model_file.row_order import find_order, own_reader_error
from edl_worker.model_file.sample import first_records
from edl_worker.tasks import record_reading
from edl_worker.tasks.export import Exporter
from edl_worker.tasks.label_order import warn_of_sorted_labels
from edl_worker.tasks.postprocess import warn_of_activations
from elasticdl.python.common.constants import Mode

_MODES = {
    TaskType.TRAINING: Mode.TRAINING,
    TaskType.EVALUATION: Mode.EVALUATION,
    TaskType.PREDICTION: Mode.PREDICTION,
}


@dataclass(slots=True)
class Inference:
    """The model's outputs without training.

    Attributes:
        rows: gives the rows of embedding tables that a minibatch needs; must be set if a master
            serves the model's tables.
    """

    engine: ModelEngine
    rows: Callable[[RowRequest], Any] | None = None

    def __call__(self, batch: Batch) -> Any:
        """Return the outputs of the model for a minibatch."""
        steps = self.engine.steps
        if steps is None or steps.tables is None or self.rows is None:
            return self.engine.infer(batch)
        wanted = steps.tables.find_rows(batch, training=False)
        return self.engine.infer(batch, wanted, self.rows(wanted))


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model whose contract has been checked, with what computes on it."""

    job: JobDescription
    engine: ModelEngine
    infer: Inference
    worker_id: int = 0

    @property
    def zoo(self) -> Path:
        """The root of the model zoo, for places in error messages."""
        return self.engine.zoo

    @property
    def steps(self) -> StepEngine | None:
        """The values and steps of a training job."""
        return self.engine.steps

    @property
    def exporter(self) -> Exporter:
        """Return the exporter of the model, which only a training job has."""
        assert self.steps is not None, "only a training job has something to export"
        return Exporter(self.job, self.engine, self.steps)

    def describe(self) -> ModelDescription:
        """Return the model as the master needs to know it."""
        if self.steps is None:
            own = self.engine.summarize().warnings
            return ModelDescription(warnings=(*own, *self.postprocess_warnings))
        described = self.steps.describe()
        # What a user asks for is tried before training; the first worker is enough.
        traces = bool(self.job.export_formats) and self.worker_id == 0
        lacks = self.exporter.expected_warnings(traces=traces) if self.job.output else ()
        hardly_meant = self.engine.summarize().warnings
        if self.worker_id == 0:  # one is enough
            hardly_meant += warn_of_sorted_labels(self.engine.source, self.job)
        return replace(described, warnings=(*hardly_meant, *described.warnings, *lacks))

    def read(self, ranges: Sequence[RecordRange]) -> Iterator[list[bytes]]:
        """Yield the records of some ranges, in order, in blocks; a changed file is an error."""
        return record_reading.read(ranges, self.job.data_cache)

    def predict(self, batch: Batch) -> Any:
        """Return the model's outputs for a minibatch, which the model file may process too."""
        outputs = self.infer(batch)
        self.engine.process_outputs(outputs, self.worker_id)
        return outputs

    @property
    def postprocess_warnings(self) -> tuple[str, ...]:
        """Warnings of a ``--postprocess`` that is hardly meant."""
        activations = self.engine.summarize().activations
        return warn_of_activations(self.job.prediction.postprocess, activations)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of a functional model's outputs."""
        return self.engine.summarize().output_names

    def minibatches(self, lease: Lease) -> Iterator[Batch] | None:
        """Return the minibatches of a task; None if it has no records."""
        mode = _MODES.get(lease.task.type)
        if mode is None:
            return None
        run = partial(
            self.engine.source.batches,
            mode=mode,
            minibatch_size=self.job.minibatch_size,
            seed=lease.seed,
            columns=find_order(lease.columns, self.job.columns).names or None,
        )
        return explain_bad_records(
            partial(run, skip=lease.skip_minibatches),
            run,
            partial(self._read_task, lease),
            partial(self.records, lease),
        )

    def _read_task(self, lease: Lease) -> Iterator[list[bytes]]:
        """Yield the records of a task, in the order in which it has them."""
        if not lease.shuffled:
            return self._read_in_order(lease)
        return record_reading.shuffle(partial(self._read_in_order, lease), lease.seed)

    def _read_in_order(self, lease: Lease) -> Iterator[list[bytes]]:
        readers = [partial(part.order.arrange, part.read) for part in self.records(lease)]
        stored = record_reading.is_stored(lease.records) and not self.engine.source.reads_records
        if len(readers) > 1 and stored:
            return record_reading.read_at_once(readers)
        return chain.from_iterable(reader() for reader in readers)

    def first_records(self) -> list[Records]:
        """Return the records that the first minibatch of the data is made of."""
        count = self.job.minibatch_size
        return list(islice(first_records(self.engine.source, self.job, count), 1))

    def records(self, lease: Lease) -> list[Records]:
        """Return the records of a task as they are in their files."""
        source, ranges = self.engine.source, lease.records
        if source.reads_records:  # by the model file's own reader, which knows no blocks
            ranges = tuple(lease.joined_ranges())
        columns = {part.uri: part.columns for part in lease.records if part.columns}
        found = []
        for part in ranges:
            order = find_order(columns.get(part.uri, ()), self.job.columns)
            if source.reads_records and order.places is not None:
                raise own_reader_error(part.uri, order)
            read = source.blocks(part.uri, part.start, part.stop, partial(self.read, (part,)))
            place = (
                place_by_number(part.uri)
                if source.reads_records
                else partial(record_reading.place, part, self.job.data_cache)
            )
            found.append(Records(part.start, read, order, place))
        return found


def load(job: JobDescription, context: Mapping[str, Any], framework: Framework) -> LoadedModel:
    """Load the model of a job; see ``Framework.load``.

    The job of the result says whether its model is replicated.
    """
    engine = framework.load(job, context)
    if job.training.replicated is None:
        replicated = engine.summarize().replicated
        job = replace(job, training=replace(job.training, replicated=replicated))
    return LoadedModel(job, engine, Inference(engine), int(context["worker_id"]))
