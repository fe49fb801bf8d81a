"""Minibatches by an ``input_fn(records)``, which a thread calls ahead of the training step."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch, Blocks
from edl_worker.engines.tensorflow.pipelines.columns import Column, shape_features, shape_labels
from edl_worker.engines.tensorflow.pipelines.random_state import seed_generators
from edl_worker.model_file.arguments import BoundFunction
from edl_worker.model_file.errors import user_code_error
from edl_worker.model_file.input_pipeline import MinibatchRequest, reading_error
from edl_worker.model_file.row_order import check_fields
from edl_worker.model_file.zoo import compatibility
from elasticdl.python.common.constants import Mode
from recordio import example
from recordio.formats.csvfile import split_row

_PREFETCH_SIZE = 2
_FREED_AT_ONCE = 10_000
_POLL_S = 0.1
_JOIN_S = 10.0  # how long a closed iterator waits for the input function to return


class FeatureRecord(dict[str, Any]):
    """The features of a record by name: bytes, or numpy numbers and arrays.

    Args:
        placeholders: values of labels, which the data of a prediction need not have.
        serialized: the record as it was read.
    """

    __slots__ = ("_placeholders", "serialized")

    def __init__(
        self, features: Mapping[str, Any], placeholders: Mapping[str, Any], serialized: bytes
    ) -> None:
        super().__init__(features)
        self.serialized = serialized
        self._placeholders = placeholders

    def __missing__(self, name: str) -> Any:
        if name in self._placeholders:
            return self._placeholders[name]
        raise KeyError(f"the record has no feature {name!r}; it has {', '.join(sorted(self))}")


class RecordsPipeline:
    """A pipeline that runs a model file's input function over the records of a task."""

    def __init__(
        self,
        function: BoundFunction,
        root: Path,
        feature_columns: tuple[Column, ...] | None,
        label_columns: tuple[Column, ...] | None,
        unlabelled: frozenset[Mode],
    ) -> None:
        self._unlabelled = unlabelled
        self._function = function
        self._root = root
        self._feature_columns = feature_columns
        self._label_columns = label_columns
        self._takes_serialized: bool | None = None  # None before the first minibatch

    @property
    def place(self) -> str:
        """The file, line and name of the input function."""
        return self._function.definition.place

    def batches(self, request: MinibatchRequest) -> Generator[Batch, None, None]:
        """Return the minibatches of a task; see ``InputPipeline``."""
        return _prefetch(lambda: self._batches(request))

    def _batches(self, request: MinibatchRequest) -> Iterator[Batch]:
        decode = _decoder(request.columns)
        placeholders = self._placeholders() if request.mode == Mode.PREDICTION else {}
        minibatches = _minibatches(request.blocks, request.minibatch_size)
        for index, records in enumerate(minibatches):
            if index < request.skip:
                continue
            rows = [FeatureRecord(decode(record), placeholders, record) for record in records]
            batch = self._batch(rows, request, index)
            while rows:  # to free all at once would keep heartbeats waiting
                del rows[-_FREED_AT_ONCE:]
            yield batch

    def _placeholders(self) -> dict[str, Any]:
        values = {}
        for column in self._label_columns or ():
            shape = () if column.shape == (1,) else column.shape
            values[column.key] = np.zeros(shape, column.dtype.as_numpy_dtype)[()]
        return values

    def _batch(self, rows: list[FeatureRecord], request: MinibatchRequest, index: int) -> Batch:
        definition = self._function.definition
        try:
            result = self._result(rows, request, index)
        except Exception as error:
            raise user_code_error(
                error,
                self._root,
                code=ErrorCode.USER_CODE,
                action=f"{definition.signature} raised",
                place=definition.place,
                remedy="Fix the function, or compare it with the data: "
                "`edl data inspect FILE` shows names, types and sizes.",
            ) from error
        features, labels, weights = self._parts(result, request.mode)
        if self._feature_columns is not None:
            features = shape_features(features, self._feature_columns, definition.place)
        if request.mode == Mode.PREDICTION:
            labels = weights = None
        elif self._label_columns is not None:
            labels = shape_labels(labels, self._label_columns, definition.place)
        parts = {"features": features, "labels": labels, "weights": weights}
        tensors = {which: self._tensors(nest) for which, nest in parts.items()}
        for which, nest in tensors.items():
            self._check_rows(nest, which, len(rows))
        return Batch(tensors["features"], tensors["labels"], len(rows), tensors["weights"])

    def _result(self, rows: list[FeatureRecord], request: MinibatchRequest, index: int) -> Any:
        """Return the result of the function.

        Files of ElasticDL parse the records themselves: a function that cannot use dictionaries
        and can use serialized records gets these from then on.
        """
        serialized = [row.serialized for row in rows]
        if self._takes_serialized is not None:
            return self._call(serialized if self._takes_serialized else rows, request, index)
        try:
            result = self._call(rows, request, index)
            self._takes_serialized = False
        except Exception as error:
            try:
                result = self._call(serialized, request, index)
            except Exception:
                raise error from None
            self._takes_serialized = True
        return result

    def _call(self, records: Sequence[Any], request: MinibatchRequest, index: int) -> Any:
        # Every minibatch has its own seed, so that skipped ones do not change the others.
        with compatibility.provide_removed_names(), seed_generators(request.seed, index):
            return self._function(records=records, mode=request.mode)

    def _parts(self, result: Any, mode: Mode) -> tuple[Any, Any, Any]:
        if isinstance(result, tuple) and len(result) in (2, 3):
            features, labels, weights = (*result, None)[:3]
            return features, labels, weights
        if mode in self._unlabelled and not isinstance(result, tuple):
            return result, None, None
        shown = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise self._error(
            ErrorCode.MODEL_CONTRACT,
            f"returned {shown} instead of (features, labels)",
            "Return ({feature name: batch of values}, batch of labels), and sample weights as a "
            "third part if there are any.",
        )

    def _tensors(self, nest: Any) -> Any:
        if nest is None:
            return None
        if isinstance(nest, Mapping):
            return {name: self._tensors(value) for name, value in nest.items()}
        if isinstance(nest, tuple):
            return tuple(self._tensors(value) for value in nest)
        try:
            return tf.convert_to_tensor(nest)
        except (ValueError, TypeError) as error:
            raise self._error(
                ErrorCode.SHAPE_MISMATCH,
                f"returned a value that is not a tensor: {error}",
                "Return arrays of numbers or bytes whose rows all have the same shape.",
            ) from error

    def _check_rows(self, nest: Any, which: str, rows: int) -> None:
        for tensor in tf.nest.flatten(nest) if nest is not None else ():
            found = tensor.shape[0] if tensor.shape.rank else None
            if found != rows:
                raise self._error(
                    ErrorCode.SHAPE_MISMATCH,
                    f"got {rows} records and returned {which} of shape {tuple(tensor.shape)}",
                    "Return one row per record, first dimension the number of records.",
                )

    def _error(self, code: Any, what: str, remedy: str) -> EdlError:
        definition = self._function.definition
        return EdlError(
            code, f"{definition.signature} {what}", where=definition.place, remedy=remedy
        )


def _minibatches(blocks: Blocks, size: int) -> Iterator[list[bytes]]:
    waiting: list[bytes] = []
    reader = blocks()
    while True:
        try:
            block = next(reader)
        except StopIteration:
            break
        except Exception as error:
            raise reading_error(error) from error
        waiting.extend(block)
        full = len(waiting) - len(waiting) % size
        for start in range(0, full, size):
            yield waiting[start : start + size]
        del waiting[:full]
    if waiting:
        yield waiting


def _decoder(columns: Sequence[str]) -> Callable[[bytes], dict[str, Any]]:
    return _CsvDecoder(columns) if columns else _decode_example


def _decode_example(record: bytes) -> dict[str, Any]:
    try:
        features = example.decode(record)
    except ValueError as error:
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            f"a record of {len(record)} bytes is not a tf.Example: {error}",
            remedy="input_fn(records) takes tf.Example records or CSV rows: convert the data with "
            "`edl data convert`, or write a dataset_fn(dataset, mode) that reads your format.",
        ) from error
    # A single value is unwrapped, as it was before it was written.
    return {name: value[0] if len(value) == 1 else value for name, value in features.items()}


class _CsvDecoder:
    """A CSV row as numbers and bytes by column name."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def __call__(self, record: bytes) -> dict[str, Any]:
        row = split_row(record)
        check_fields(len(row), self._columns)
        return {
            name: _number_or_bytes(field) for name, field in zip(self._columns, row, strict=True)
        }


def _number_or_bytes(field: str) -> Any:
    for kind in () if "_" in field else (np.int64, np.float64):  # Python takes 1_000 for a number
        with contextlib.suppress(ValueError, OverflowError):
            return kind(field)
    return field.encode("utf-8", errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException


_END = object()


def _prefetch(make: Callable[[], Iterator[Batch]]) -> Generator[Batch, None, None]:
    """Run an iterator in a thread, at most ``_PREFETCH_SIZE`` elements ahead.

    The thread ends with the iterator, also if the iterator is closed before its end.
    """
    ready: queue.Queue[Any] = queue.Queue(_PREFETCH_SIZE)
    closed = threading.Event()

    def put(item: Any) -> bool:
        while not closed.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=_POLL_S)
                return True
        return False

    def run() -> None:
        try:
            for batch in make():
                if not put(batch):
                    return
            put(_END)
        except BaseException as error:
            put(_Failure(error))

    thread = threading.Thread(target=run, name="input_fn", daemon=True)
    thread.start()
    try:
        # User code may block forever. The master detects that, because no step is completed.
        while (item := ready.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        closed.set()
        thread.join(_JOIN_S)
