"""Minibatches by a ``dataset_fn(dataset, mode)``: one ``tf.data`` pipeline per task."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch, Blocks
from edl_worker.engines.tensorflow.category_check import check_categories
from edl_worker.engines.tensorflow.internals import (
    caches_to_file,
    dataset_kind,
    dataset_lineage,
    has_stateful_operations,
    is_nondeterministic,
)
from edl_worker.engines.tensorflow.pipelines.map_execution import (
    efficient_maps,
    functions_on_one_device,
    marked_interleaves,
)
from edl_worker.engines.tensorflow.pipelines.own_batches import (
    batch_problem,
    minibatches,
    yields_batches,
)
from edl_worker.engines.tensorflow.pipelines.random_state import RandomDrawDetector, seed_generators
from edl_worker.engines.tensorflow.pipelines.row_forms import RowForm, has_labels_of_text, row_forms
from edl_worker.model_file.arguments import BoundFunction
from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.errors import type_with_article, user_code_error
from edl_worker.model_file.input_pipeline import MinibatchRequest, reading_error
from edl_worker.model_file.zoo import compatibility
from elasticdl.python.common.constants import Mode
from recordio import tfdata

_PREFETCH_SIZE = 2
_OF_CODE_ALONE = (AttributeError, NameError, tf.errors.OperatorNotAllowedInGraphError)
"""What a function raises when it is called, which is before it gets any records, because of its
code alone; columns and shapes are of the data."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The metadata of the records for a ``dataset_fn(dataset, mode, metadata)``."""

    column_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PipelineKey:
    """The key of a task's pipeline: what it depends on, apart from records and seed."""

    mode: Mode
    minibatch_size: int
    columns: tuple[str, ...]


class _Source:
    """A dataset of the records of one task at a time, and the pipelines built on it.

    Tracing the functions of a pipeline costs more than running a small task. So sources are
    reused, and so are pipelines in which nothing is random and nothing has a state.
    """

    def __init__(self) -> None:
        self.begin(lambda: iter(()))
        self.reading = tfdata.ErrorRelay()
        self.records = tfdata.from_blocks(self._read, relay=self.reading)
        self.pipelines: dict[_PipelineKey, tf.data.Dataset] = {}

    def begin(self, blocks: Blocks) -> None:
        """Let the dataset have these records from now on."""
        self._blocks, self.is_read = blocks, False

    def _read(self) -> Iterator[list[bytes]]:
        self.is_read = True
        return self._blocks()


class DatasetPipeline:
    """A pipeline that runs a model file's dataset function over the records of a task."""

    def __init__(
        self,
        function: BoundFunction,
        root: Path,
        unlabelled: frozenset[Mode],
        observe: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._function = function
        self._observe = observe  # its first call
        self._unlabelled = unlabelled
        self._root = root
        self._idle: list[_Source] = []
        self._lock = threading.Lock()
        self._row_form: RowForm | None = None  # the one that the function works with

    @property
    def place(self) -> str:
        """The file, line and name of the input function."""
        return self._function.definition.place

    def batches(self, request: MinibatchRequest) -> Generator[Batch, None, None]:
        """Yield the minibatches of a task; see ``InputPipeline``."""
        with self._source() as source:
            source.begin(request.blocks)
            dataset = self._minibatches(source, request)
            if request.skip:
                dataset = dataset.skip(request.skip)
            iterator = iter(dataset.prefetch(_PREFETCH_SIZE))
            try:
                while True:
                    try:
                        element = next(iterator)
                    except StopIteration:
                        break
                    except Exception as error:
                        raise self._record_error(error, source.reading) from error
                    if not source.is_read and not _is_made_from(dataset, source.records):
                        raise self._foreign_examples()
                    yield _batch(element, request.mode)
            finally:
                del iterator  # ends its threads before the next task uses the source
            # A function that ignores errors also ignores those of the reader; edl must not.
            if source.reading.error is not None:
                raise reading_error(source.reading.error)

    @contextmanager
    def _source(self) -> Iterator[_Source]:
        with self._lock:
            source = self._idle.pop() if self._idle else None
        if source is None:
            with seed_generators(0):
                source = _Source()
        try:
            yield source
        finally:
            with self._lock:
                self._idle.append(source)

    def _minibatches(self, source: _Source, request: MinibatchRequest) -> tf.data.Dataset:
        key = _PipelineKey(request.mode, request.minibatch_size, request.columns)
        if key in source.pipelines:
            return source.pipelines[key]
        with (
            compatibility.provide_removed_names(),
            seed_generators(request.seed),
            _without_shuffles(request.mode),
            marked_interleaves(),
            efficient_maps(source.records),
            functions_on_one_device(),
            check_categories(checks=request.mode is Mode.TRAINING),
        ):
            random_draws = RandomDrawDetector()
            dataset = self._dataset(source.records, request.mode, request.columns)
            reusable = not random_draws and _is_reusable(dataset, source.records)
        try:
            dataset = minibatches(dataset, request.minibatch_size)
        except (ValueError, TypeError) as error:
            raise self._record_error(error, source.reading) from error
        options = tf.data.Options()
        options.deterministic = True
        if dataset.options().autotune.enabled is None:
            # Now and then, closing an iterator waits until the thread that tunes it wakes up,
            # which takes as long as the task has lasted. A task is too short for tuning to pay;
            # AUTOTUNE means as many parallel calls as there are cores.
            options.autotune.enabled = False
        dataset = dataset.with_options(options)
        if reusable:
            source.pipelines[key] = dataset
        return dataset

    def _dataset(
        self, source: tf.data.Dataset, mode: Mode, columns: tuple[str, ...]
    ) -> tf.data.Dataset:
        try:
            dataset = self._in_row_form(source, mode, columns)
        except Exception as error:
            of_code = isinstance(error, _OF_CODE_ALONE)
            raise user_code_error(
                error,
                self._root,
                code=ErrorCode.MODEL_CONTRACT if of_code else ErrorCode.USER_CODE,
                action=f"{self._function.definition.signature} raised",
                place=self._function.definition.place,
                remedy="Fix the function. The detail has a traceback.",
            ) from error
        self._check(dataset, source, mode)
        return dataset

    def _in_row_form(
        self, source: tf.data.Dataset, mode: Mode, columns: tuple[str, ...]
    ) -> tf.data.Dataset:
        """Return the function's dataset for the first form of rows that it accepts."""
        metadata = RecordMetadata(columns)
        forms = [self._row_form] if self._row_form is not None else row_forms(columns)
        kept: tuple[RowForm, Any] | None = None
        raised: Exception | None = None
        for form in forms:
            try:
                with self._observe():
                    dataset = self._function(dataset=form(source), mode=mode, metadata=metadata)
            except Exception as error:
                raised = raised or error
                continue
            kept = form, dataset
            if form is forms[0] or not has_labels_of_text(dataset):
                break
        if kept is None:
            assert raised is not None
            raise raised
        (self._row_form, dataset), self._observe = kept, nullcontext
        return dataset

    def _check(self, dataset: Any, source: tf.data.Dataset, mode: Mode) -> None:
        """Refuse what would break the count of records or the order of predictions."""
        if not isinstance(dataset, tf.data.Dataset):
            raise self._function.definition.error(
                f"returned {type_with_article(dataset)}, not a tf.data.Dataset",
                "Return the dataset, mapped and shuffled.",
            )
        self._check_end(dataset, source)
        if yields_batches(dataset) and (problem := batch_problem(dataset)) is not None:
            raise self._function.definition.error(*problem)
        self._check_parts(dataset.element_spec, mode)
        for step in dataset_lineage(dataset):
            if mode == Mode.PREDICTION:
                self._check_order(step)
            if dataset_kind(step) in _STEPS_BY_POSITION:
                raise self._function.definition.error(
                    f"calls .{dataset_kind(step).lower()}(), which would leave records of every "
                    "task out",
                    "Leave it out: rows come without the header of their file, and every task has "
                    "records of its own. To train on a part of the data, give --data that part.",
                )
            if is_nondeterministic(step):
                raise self._function.definition.error(
                    "asks for deterministic=False, so a task could not be continued elsewhere",
                    "Leave deterministic out.",
                )
            if caches_to_file(step):
                raise self._function.definition.error(
                    "caches into a file, which the next task would read as its own",
                    "Leave out .cache(filename).",
                )

    def _check_parts(self, spec: Any, mode: Mode) -> None:
        """Refuse examples that are no features with labels."""
        if any(isinstance(each, tf.data.DatasetSpec) for each in tf.nest.flatten(spec)):
            raise self._function.definition.error(
                "yields datasets instead of tensors, as .window() does",
                "Join the records of each: .window(5, drop_remainder=True).flat_map(lambda x, y: "
                "tf.data.Dataset.zip((x.batch(5), y.batch(5)))), and choose the label that you "
                "want, for example y[-1].",
            )
        features = spec[0] if isinstance(spec, tuple) and spec else spec
        if any(isinstance(each, tf.NoneTensorSpec) for each in tf.nest.flatten(features)):
            raise self._function.definition.error(
                "yields None among its features", "Yield tensors, and leave the others out."
            )
        if isinstance(spec, tuple) and len(spec) > 3:
            raise self._function.definition.error(
                f"yields {len(spec)} parts per record",
                "Yield (features, labels), or (features, labels, sample weights).",
            )
        if mode not in self._unlabelled and not (isinstance(spec, tuple) and len(spec) > 1):
            raise self._function.definition.error(
                f"yields no labels in mode {mode.name}",
                "Yield (features, labels) unless mode is Mode.PREDICTION."
                + (
                    f" One dictionary has {', '.join(spec)}: take the label out of it."
                    if isinstance(spec, dict)
                    else ""
                ),
            )

    def _check_order(self, step: tf.data.Dataset) -> None:
        if "Shuffle" in dataset_kind(step):
            raise self._function.definition.error(
                "shuffles in mode PREDICTION, so predictions would lose their records",
                "Shuffle only `if mode == Mode.TRAINING`.",
            )
        if dataset_kind(step) == "GroupByWindow":
            raise self._function.definition.error(
                "groups records in mode PREDICTION, so predictions would lose their records",
                "Use .bucket_by_sequence_length() and .group_by_window() only "
                "`if mode != Mode.PREDICTION`, and pad to one length otherwise.",
            )

    def _check_end(self, dataset: tf.data.Dataset, source: tf.data.Dataset) -> None:
        if dataset.cardinality() != tf.data.INFINITE_CARDINALITY:
            return
        if not _is_made_from(dataset, source):
            raise self._foreign_examples()
        raise self._function.definition.error(
            "repeats the dataset forever",
            "Leave out .repeat(); --num-epochs sets how often edl reads the data.",
        )

    def _foreign_examples(self) -> EdlError:
        return self._function.definition.error(
            "yields examples of its own, without reading the dataset that it gets",
            "Make the examples from this dataset, such as dataset.map(parse): it has the records "
            "of --data, and edl counts these.",
        )

    def _record_error(self, error: Exception, reading: tfdata.ErrorRelay) -> EdlError:
        """Return the error to report when reading failed or a record does not fit the function."""
        if reading.error is not None:
            return reading_error(reading.error)
        definition = self._function.definition
        message = message_of(error)
        if re.search(r"Cannot (batch|add) tensor", message):
            return EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"{definition.signature} yields records of different shapes: {message}",
                where=definition.place,
                remedy="Yield tensors of one shape: tf.io.FixedLenFeature, a resize, or padding.",
            )
        about_shapes = isinstance(error, tf.errors.InvalidArgumentError)
        return user_code_error(
            error,
            self._root,
            code=ErrorCode.SHAPE_MISMATCH if about_shapes else ErrorCode.USER_CODE,
            action=f"a record does not fit {definition.signature}:"
            if about_shapes
            else f"{definition.signature} raised while it processed records:",
            place=definition.place,
            remedy="Compare the function's features with the data: "
            "`edl data inspect FILE` shows names, types and sizes.",
        )


def _batch(element: Any, mode: Mode) -> Batch:
    parts = element if isinstance(element, tuple) else (element,)
    features, labels, weights = (*parts, None, None)[:3]
    if mode == Mode.PREDICTION:
        labels = weights = None
    return Batch(features, labels, _rows_of(features), weights)


@contextmanager
def _without_shuffles(mode: Mode) -> Iterator[None]:
    """Ignore ``.shuffle()`` in a prediction, which has to keep the order of the records.

    Use it under the lock of ``seed_generators``, like everything that builds pipelines.
    """
    if mode != Mode.PREDICTION:
        yield
        return

    def ignore(self: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        compatibility.warn_once("predictions keep the order of the records: .shuffle() is ignored")
        return self

    shuffle = tf.data.Dataset.shuffle
    tf.data.Dataset.shuffle = ignore
    try:
        yield
    finally:
        tf.data.Dataset.shuffle = shuffle


def _is_made_from(dataset: tf.data.Dataset, source: tf.data.Dataset) -> bool:
    return any(step is source for step in dataset_lineage(dataset))


# Steps that start afresh with each iteration and keep nothing from the last one.
_STATELESS_STEPS = frozenset(
    ("Map", "ParallelMap", "Filter", "Prefetch", "Batch", "Unbatch", "Options")
)

_STEPS_BY_POSITION = frozenset(("Take", "Skip", "Shard"))
"""Steps that keep or leave records by their position, which in a task means nothing."""


def _is_reusable(dataset: Any, source: Any) -> bool:
    """Whether a second iteration, over the records of another task, equals a new pipeline."""
    for step in dataset_lineage(dataset):
        if step is source:
            return True
        if dataset_kind(step) not in _STATELESS_STEPS or has_stateful_operations(step):
            return False
    return False


def _rows_of(nest: Any) -> int:
    """Return the first dimension of the first tensor in a nest of eager tensors."""
    first = tf.nest.flatten(nest)[0]
    rows = first.shape[0]
    return int(rows if rows is not None else tf.shape(first)[0])
