"""Makes the functions of a ``dataset_fn`` cheap to start and to call, and notes their order.

TensorFlow runs each call of a mapped function operation by operation in a thread pool, whose
threads look for work and wake each other up. For the usual function, which parses one record, that
costs several times what the function does. Maps that ask for parallel calls or for
``synchronous=True`` stay as they are.

Each iteration instantiates all functions of its datasets. For a function that may use several
devices, TensorFlow places, optimizes and partitions its graph each time, which takes longer than
the records of a small task.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import (
    UnsupportedVersion,
    dataset_functions_on_one_device,
    dataset_kind,
    mapped_function,
    mark_nondeterministic,
    replace_map,
)
from edl_worker.engines.tensorflow.pipelines.batched_parsing import SIZE, BatchedFunctions

log = logging.getLogger(__name__)

# TensorFlow's single-threaded executor does not support these operations.
_CONTROL_FLOW = frozenset(
    (
        *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"),
        *("Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "Exit", "NextIteration"),
    )
)


_batched = BatchedFunctions()


@contextmanager
def efficient_maps(records: tf.data.Dataset | None = None) -> Iterator[None]:
    """Build sequential maps to run in the calling thread while the context lasts.

    Those of ``records``, which are single texts, run on many records at once if that is the same.

    Use it under the lock of ``seed_generators``, like everything that builds pipelines.
    """
    original = tf.data.Dataset.map

    def map_dataset(self: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        dataset = original(self, *args, **kwargs)
        try:
            function = mapped_function(dataset)
            if function is None or _has_control_flow(function.graph):
                return dataset
            batched = None
            if self is records:
                batched = _batched.find(function, lambda f: original(records.batch(SIZE), f))
            replace_map(dataset, _map_each if batched is None else _map_batches(batched))
        except UnsupportedVersion as error:  # only speed is lost
            log.warning("mapped functions run in a thread pool: %s", error.what)
        return dataset

    tf.data.Dataset.map = map_dataset
    try:
        yield
    finally:
        tf.data.Dataset.map = original


@contextmanager
def functions_on_one_device() -> Iterator[None]:
    """Build the functions of datasets for the only device there is while the context lasts.

    They stay as they are where a worker has several devices, since a function may use any of them.
    Use it under the lock of ``seed_generators``, like everything that builds pipelines.
    """
    with ExitStack() as stack:
        if len(tf.config.list_logical_devices()) == 1:
            try:
                stack.enter_context(dataset_functions_on_one_device())
            except UnsupportedVersion as error:  # only speed is lost
                log.warning("functions of datasets start slowly: %s", error.what)
        yield


def _map_each(source: Any, function: Any, types: Any, shapes: Any) -> Any:
    """Return the results of a function, run in the thread that asks for them."""
    return tf.raw_ops.MapDataset(
        input_dataset=source,
        other_arguments=function.captured_inputs,
        f=function,
        output_types=types,
        output_shapes=shapes,
        use_inter_op_parallelism=False,
        preserve_cardinality=True,
    )


def _map_batches(batched: tf.data.Dataset) -> Callable[[Any, Any, Any, Any], Any]:
    """Return what maps records in batches by the function of ``batched``, and takes them apart."""

    def make(source: Any, function: Any, types: Any, shapes: Any) -> Any:
        batches = tf.raw_ops.BatchDatasetV2(
            input_dataset=source,
            batch_size=tf.constant(SIZE, tf.int64),
            drop_remainder=False,
            output_types=[tf.string],
            output_shapes=[[None]],
        )
        many = [tf.TensorShape([None]).concatenate(shape) for shape in shapes]
        parsed = _map_each(batches, mapped_function(batched), types, many)
        return tf.raw_ops.UnbatchDataset(
            input_dataset=parsed, output_types=types, output_shapes=shapes
        )

    return make


def _has_control_flow(graph: Any) -> bool:
    definition = graph.as_graph_def()
    nodes = list(definition.node)
    for function in definition.library.function:
        nodes += function.node_def
    return any(node.op in _CONTROL_FLOW for node in nodes)


@contextmanager
def marked_interleaves() -> Iterator[None]:
    """Note ``deterministic=False`` at parallel interleaves, whose datasets do not keep it.

    Use it under the lock of ``seed_generators``, like everything that builds pipelines.
    """
    interleave = tf.data.Dataset.interleave

    @functools.wraps(interleave)
    def mark(self: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        made = interleave(self, *args, **kwargs)
        given = kwargs.get("deterministic", args[4] if len(args) > 4 else None)
        if given is False and dataset_kind(made) == "ParallelInterleave":
            mark_nondeterministic(made)
        return made

    tf.data.Dataset.interleave = mark
    try:
        yield
    finally:
        tf.data.Dataset.interleave = interleave
