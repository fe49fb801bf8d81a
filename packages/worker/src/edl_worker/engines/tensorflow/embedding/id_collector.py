"""The part of a model that computes ids from features, without the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import open_size_spec

CollectedIds = tuple[tuple[int, ...], list[tf.Tensor], list[tf.Tensor]]
"""Numbers of the lookups' tables; ids of each table that is used, in order of the tables; for
each lookup the places of its ids among them."""

_MAX_TRACES = 16


@dataclass(frozen=True, slots=True)
class _Trace:
    numbers: tuple[int, ...]
    run: Callable[..., list[tf.Tensor]]
    needed: tuple[int, ...]


class IdCollector:
    """A runner of only those operations of a model that the ids of its lookups depend on."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._traces: dict[Any, _Trace] = {}

    def __call__(self, batch: Batch, numbers: Mapping[int, int], *, training: bool) -> CollectedIds:
        """Return the ids of a minibatch.

        Args:
            numbers: number of the table by ``id`` of its layer.

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
            trace = self._traces[key] = self._trace(batch, specs, numbers, training)
        flat = tf.nest.flatten(batch.features, expand_composites=True)
        found = trace.run(*(flat[i] for i in trace.needed))
        used = len(set(trace.numbers))
        return trace.numbers, list(found[:used]), list(found[used:])

    def _trace(
        self, batch: Batch, specs: Any, numbers: Mapping[int, int], training: bool
    ) -> _Trace:
        try:
            return self._prune(specs, numbers, training)
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
            return self._prune(exact, numbers, training)

    def _prune(self, specs: Any, numbers: Mapping[int, int], training: bool) -> _Trace:
        flat_specs = [
            tf.TensorSpec(s.shape, s.dtype) for s in tf.nest.flatten(specs, expand_composites=True)
        ]
        order: list[int] = []
        outputs: list[tf.Tensor] = []

        def whole(*flat: tf.Tensor) -> list[tf.Tensor]:
            features = tf.nest.pack_sequence_as(specs, flat, expand_composites=True)
            stage = CollectIds(tf.compat.v1.get_default_graph())
            with in_stage(stage):
                self._file.call(features, training=training)
            stage.check()
            order[:] = [numbers[id(table)] for table in stage.tables]
            unique, places = [], [tf.zeros([0], tf.int32)] * len(order)
            for number in sorted(set(order)):
                mine = [i for i, n in enumerate(order) if n == number]
                each = [stage.ids[i] for i in mine]
                found, at = tf.unique(tf.concat(each, 0) if len(each) > 1 else each[0])
                unique.append(found)
                sizes = [tf.size(ids) for ids in each]
                parts = tf.split(at, sizes) if len(each) > 1 else [at]
                for i, part in zip(mine, parts, strict=True):
                    places[i] = part
            outputs[:] = [*unique, *places]
            return outputs

        wrapped = tf.compat.v1.wrap_function(whole, flat_specs)
        feeds = wrapped.inputs[: len(flat_specs)]
        needed = _find_needed(wrapped.outputs, feeds)
        run = wrapped.prune([feeds[i] for i in needed], list(wrapped.outputs))
        return _Trace(tuple(order), run, needed)


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
