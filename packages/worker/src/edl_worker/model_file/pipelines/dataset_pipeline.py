"""Minibatches by a ``dataset_fn(dataset, mode)``: one ``tf.data`` pipeline per task."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

import recordio
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import BoundFunction
from edl_worker.model_file.batch import Batch, rows_of
from edl_worker.model_file.errors import blame, message_of
from edl_worker.model_file.pipelines.map_execution import maps_in_calling_thread
from edl_worker.model_file.random_state import RandomDrawDetector, seeded
from edl_worker.model_file.zoo import compatibility
from edl_worker.tensorflow_internals import (
    caches_to_file,
    dataset_kind,
    dataset_lineage,
    has_stateful_operations,
    is_nondeterministic,
)
from elasticdl.python.common.constants import Mode
from recordio import tfdata

_PREFETCHED = 2

Blocks = Callable[[], Iterator[list[bytes]]]


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """What a ``dataset_fn(dataset, mode, metadata)`` may know about its records."""

    column_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a task's pipeline depends on beside records and seed."""

    mode: Mode
    minibatch_size: int
    columns: tuple[str, ...]


class _Source:
    """A dataset of the records of one task at a time, and what was built on it.

    Tracing a pipeline's functions costs more than running a small task, so sources are used
    again, and so are whole pipelines if nothing in them is random or remembers anything.
    """

    def __init__(self) -> None:
        self.blocks: Blocks = lambda: iter(())
        self.reading = tfdata.Failure()
        self.records = tfdata.from_blocks(self._read, failure=self.reading)
        self.built: dict[_Kind, tf.data.Dataset] = {}

    def _read(self) -> Iterator[list[bytes]]:
        return self.blocks()


class DatasetPipeline:
    """Runs a model file's dataset function over the records of a task."""

    def __init__(self, function: BoundFunction, root: Path) -> None:
        self._function = function
        self._root = root
        self._idle: list[_Source] = []
        self._lock = threading.Lock()

    def batches(
        self,
        blocks: Blocks,
        *,
        mode: Mode,
        minibatch_size: int,
        seed: int,
        skip: int,
        columns: tuple[str, ...],
    ) -> Iterator[Batch]:
        with self._source() as source:
            source.blocks = blocks
            dataset = self._minibatches(source, _Kind(mode, minibatch_size, columns), seed)
            iterator = iter((dataset.skip(skip) if skip else dataset).prefetch(_PREFETCHED))
            try:
                while True:
                    try:
                        element = next(iterator)
                    except StopIteration:
                        break
                    except Exception as error:
                        raise self._blame(error, source.reading) from error
                    yield _batch(element, mode)
            finally:
                del iterator  # its threads are done with the source before the next task is
            # A function that ignores errors ignores those of the reader too; nobody else may.
            if source.reading.error is not None:
                raise reading_error(source.reading.error)

    @contextmanager
    def _source(self) -> Iterator[_Source]:
        with self._lock:
            source = self._idle.pop() if self._idle else None
        if source is None:
            with seeded(0):
                source = _Source()
        try:
            yield source
        finally:
            with self._lock:
                self._idle.append(source)

    def _minibatches(self, source: _Source, kind: _Kind, seed: int) -> tf.data.Dataset:
        if kind in source.built:
            return source.built[kind]
        with (
            compatibility.served(),
            seeded(seed),
            _in_order(kind.mode),
            maps_in_calling_thread(),
        ):
            draws = RandomDrawDetector()
            dataset = self._dataset(source.records, kind.mode, kind.columns)
            again = not draws and _is_reusable(dataset, source.records)
        try:
            dataset = dataset.batch(kind.minibatch_size)
        except (ValueError, TypeError) as error:
            raise self._blame(error, source.reading) from error
        options = tf.data.Options()
        options.deterministic = True
        if dataset.options().autotune.enabled is None:
            # An iterator that is let go now and then waits for the thread which tunes it, until
            # that wakes up by itself: as long again as the task has lasted. A task is too short
            # for tuning to pay; AUTOTUNE means as many calls at a time as there are cores.
            options.autotune.enabled = False
        dataset = dataset.with_options(options)
        if again:
            source.built[kind] = dataset
        return dataset

    def _dataset(
        self, source: tf.data.Dataset, mode: Mode, columns: tuple[str, ...]
    ) -> tf.data.Dataset:
        try:
            dataset = self._function(dataset=source, mode=mode, metadata=RecordMetadata(columns))
        except Exception as error:
            raise blame(
                error,
                self._root,
                code=error_pb2.USER_CODE,
                doing=f"{self._function.part.signature} raised",
                fallback=self._function.part.where,
                remedy="Mend the function; the traceback shows its own frames.",
            ) from error
        self._check(dataset, mode)
        return dataset

    def _check(self, dataset: Any, mode: Mode) -> None:
        """What would break the counting of records or the order of predictions."""
        if not isinstance(dataset, tf.data.Dataset):
            raise self._wrong(
                f"returned a {type(dataset).__name__}, not a tf.data.Dataset",
                "Return the dataset, mapped and shuffled.",
            )
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise self._wrong(
                "repeats the dataset without end",
                "Leave out .repeat(); --num-epochs says how often the data is read.",
            )
        spec = dataset.element_spec
        if isinstance(spec, tuple) and len(spec) > 2:
            raise self._wrong(
                f"yields {len(spec)} parts per record",
                "Yield (features, labels); put weights among the features or the labels.",
            )
        if mode != Mode.PREDICTION and not (isinstance(spec, tuple) and len(spec) == 2):
            raise self._wrong(
                f"yields no labels in mode {mode.name}",
                "Yield (features, labels) unless mode is Mode.PREDICTION.",
            )
        for step in dataset_lineage(dataset):
            if mode == Mode.PREDICTION and "Shuffle" in dataset_kind(step):
                raise self._wrong(
                    "shuffles in mode PREDICTION, so predictions would lose their records",
                    "Shuffle only `if mode == Mode.TRAINING`.",
                )
            if is_nondeterministic(step):
                raise self._wrong(
                    "asks for deterministic=False, so a task could not be continued elsewhere",
                    "Leave deterministic out.",
                )
            if caches_to_file(step):
                raise self._wrong(
                    "caches into a file, which the next task would read as its own",
                    "Leave out .cache(filename).",
                )

    def _wrong(self, what: str, remedy: str) -> EdlError:
        return EdlError(
            error_pb2.MODEL_CONTRACT,
            f"{self._function.part.signature} {what}",
            where=self._function.part.where,
            remedy=remedy,
        )

    def _blame(self, error: Exception, reading: tfdata.Failure) -> EdlError:
        """Reading failed, or a record does not fit what the function expects."""
        if reading.error is not None:
            return reading_error(reading.error)
        part = self._function.part
        message = message_of(error)
        if re.search(r"Cannot (batch|add) tensor", message):
            return EdlError(
                error_pb2.SHAPE_MISMATCH,
                f"{part.signature} yields records of different shapes: {message}",
                where=part.where,
                remedy="Yield tensors of one shape: tf.io.FixedLenFeature, a resize, or padding.",
            )
        shape = isinstance(error, tf.errors.InvalidArgumentError)
        return blame(
            error,
            self._root,
            code=error_pb2.SHAPE_MISMATCH if shape else error_pb2.USER_CODE,
            doing=f"a record does not fit {part.signature}:"
            if shape
            else f"{part.signature} raised while records went through it:",
            fallback=part.where,
            remedy="Compare the function's features with the data: "
            "`edl data inspect FILE` shows names, types and sizes.",
        )


def reading_error(error: Exception) -> EdlError:
    """The error for what the data's reader raised."""
    if isinstance(error, EdlError):
        return error
    damaged = not isinstance(error, OSError | recordio.UnreadableFile)
    return EdlError(
        error_pb2.DATA_DAMAGED if damaged else error_pb2.DATA_UNREADABLE,
        str(error) or type(error).__name__,
        where=str(getattr(error, "uri", None) or getattr(error, "filename", None) or ""),
        remedy="Write the file again from its source; `edl data inspect FILE` checks it."
        if damaged
        else "Check that the file is still there and may be read.",
    )


def _batch(element: Any, mode: Mode) -> Batch:
    features, labels = (
        element if isinstance(element, tuple) and len(element) == 2 else (_only(element), None)
    )
    return Batch(features, None if mode == Mode.PREDICTION else labels, rows_of(features))


def _only(element: Any) -> Any:
    return element[0] if isinstance(element, tuple) and len(element) == 1 else element


@contextmanager
def _in_order(mode: Mode) -> Iterator[None]:
    """Leaves shuffles out of a prediction, which has to keep the order of the records.

    To be used under the lock of ``seeded``, like all building of pipelines.
    """
    if mode != Mode.PREDICTION:
        yield
        return

    def stay(self: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        compatibility.say("predictions keep the order of the records: .shuffle() is left out")
        return self

    shuffle = tf.data.Dataset.shuffle
    tf.data.Dataset.shuffle = stay
    try:
        yield
    finally:
        tf.data.Dataset.shuffle = shuffle


# Steps that start afresh with each iteration and keep nothing from the last one.
_STATELESS_STEPS = frozenset(
    ("Map", "ParallelMap", "Filter", "Prefetch", "Take", "Skip", "Batch", "Unbatch", "Options")
)


def _is_reusable(dataset: Any, source: Any) -> bool:
    """Whether a second iteration, over the records of another task, equals a new pipeline."""
    for step in dataset_lineage(dataset):
        if step is source:
            return True
        if dataset_kind(step) not in _STATELESS_STEPS or has_stateful_operations(step):
            return False
    return False
