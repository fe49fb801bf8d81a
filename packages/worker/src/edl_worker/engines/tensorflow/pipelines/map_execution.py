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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import (
    UnsupportedVersion,
    dataset_functions_on_one_device,
    dataset_kind,
    mapped_function,
    mark_nondeterministic,
    run_map_in_calling_thread,
)

log = logging.getLogger(__name__)

# TensorFlow's single-threaded executor does not support these operations.
_CONTROL_FLOW = frozenset(
    (
        *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"),
        *("Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "Exit", "NextIteration"),
    )
)


@contextmanager
def maps_in_calling_thread() -> Iterator[None]:
    """Build sequential maps to run in the calling thread while the context lasts.

    Use it under the lock of ``seed_generators``, like everything that builds pipelines.
    """
    original = tf.data.Dataset.map

    def map_dataset(self: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        dataset = original(self, *args, **kwargs)
        try:
            function = mapped_function(dataset)
            if function is not None and not _has_control_flow(function.graph):
                run_map_in_calling_thread(dataset)
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
