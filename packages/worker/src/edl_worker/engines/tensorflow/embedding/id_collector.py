"""The part of a model that computes ids from features, without the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.embedding.lookup_stages import (
    CollectIds,
    UnservedLookupError,
    in_stage,
)
from edl_worker.engines.tensorflow.embedding.lookups import LookupOrder
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import open_size_spec

_MAX_TRACES = 16


@dataclass(frozen=True, slots=True)
class CollectedIds:
    """The ids of a minibatch.

    Attributes:
        order: of the lookups and tables.
        ids: int64, of all lookups, in the order of ``LookupOrder.lookups_of`` in each group.
        sizes: int32, how many ids each lookup has.
    """

    order: LookupOrder
    ids: tf.Tensor
    sizes: tf.Tensor


@dataclass(frozen=True, slots=True)
class _Trace:
    order: LookupOrder
    run: Callable[..., list[tf.Tensor]]
    needed: tuple[int, ...]


class IdCollector:
    """A runner of only those operations of a model that the ids of its lookups depend on."""

    def __init__(self, file: ModelFile, numbers: Mapping[int, int], dims: Sequence[int]) -> None:
        """Note the tables of a model.

        Args:
            file: the model file.
            numbers: number of the table by ``id`` of its layer.
            dims: numbers of a row, by table.
        """
        self._file = file
        self._numbers = numbers
        self._dims = dims
        self._traces: dict[Any, _Trace] = {}

    def __call__(self, batch: Batch, *, training: bool) -> CollectedIds:
        """Return the ids of a minibatch.

        Raises:
            EdlError: they cannot be known before the model runs.
        """
        specs = open_size_spec(batch.features, batch.size)
        key = (
            training,
            tuple(tf.nest.flatten(specs)),
            repr(tf.nest.map_structure(_drop_array, specs)),
        )
        trace = self._traces.get(key)
        if trace is None:
            if len(self._traces) >= _MAX_TRACES:
                self._traces.clear()
            trace = self._traces[key] = self._trace(batch, specs, training)
        flat = tf.nest.flatten(batch.features, expand_composites=True)
        ids, sizes = trace.run(*(flat[i] for i in trace.needed))
        return CollectedIds(trace.order, ids, sizes)

    def _trace(self, batch: Batch, specs: Any, training: bool) -> _Trace:
        try:
            return self._prune(specs, training)
        except UnservedLookupError as error:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                str(error),
                where=f"model {self._file.model.name}",
                remedy="Look embeddings up outside of loops and branches, with ids that come "
                "from the features; for keras.layers.Embedding, --embedding-threshold 0 keeps "
                "the layer as it is.",
            ) from error
        except EdlError:
            raise
        except Exception:
            # A model that needs to know the size is traced for each size.
            exact = tf.nest.map_structure(tf.type_spec_from_value, batch.features)
            if tf.nest.flatten(exact) == tf.nest.flatten(specs):
                raise
            return self._prune(exact, training)

    def _prune(self, specs: Any, training: bool) -> _Trace:
        flat_specs = [
            tf.TensorSpec(s.shape, s.dtype) for s in tf.nest.flatten(specs, expand_composites=True)
        ]
        orders: list[LookupOrder] = []
        outputs: list[tf.Tensor] = []

        def whole(*flat: tf.Tensor) -> list[tf.Tensor]:
            features = tf.nest.pack_sequence_as(specs, flat, expand_composites=True)
            stage = CollectIds(tf.compat.v1.get_default_graph())
            with in_stage(stage):
                self._file.call(features, training=training)
            stage.check()
            order = LookupOrder.of([self._numbers[id(t)] for t in stage.tables], self._dims)
            orders.append(order)
            outputs[:] = _join_ids(order, stage.ids)
            return outputs

        wrapped = tf.compat.v1.wrap_function(whole, flat_specs)
        feeds = wrapped.inputs[: len(flat_specs)]
        needed = _find_needed(wrapped.outputs, feeds)
        run = wrapped.prune([feeds[i] for i in needed], list(wrapped.outputs))
        return _Trace(orders[-1], run, needed)


def _join_ids(order: LookupOrder, ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return ids and sizes as in ``CollectedIds``; ``ids`` are each lookup's."""
    if not ids:
        return [tf.zeros([0], tf.int64), tf.zeros([0], tf.int32)]
    lookups = [i for group in range(len(order.groups)) for i in order.lookups_of(group)]
    return [tf.concat([ids[i] for i in lookups], 0), tf.stack([tf.size(part) for part in ids])]


def _find_needed(outputs: list[tf.Tensor], feeds: list[tf.Tensor]) -> tuple[int, ...]:
    """Return the positions of the feeds that the outputs depend on."""
    seen: set[str] = set()
    waiting = [tensor.op for tensor in outputs]
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return tuple(i for i, feed in enumerate(feeds) if feed.op.name in seen)


def _drop_array(_: Any) -> None:
    return None
