"""Makes ``dataset.map(function)`` cheap: the function runs in the thread that asks for the element.

As TensorFlow runs it, each call goes operation by operation through a pool of threads that look
for work and wake each other up. For the usual function, which parses one record, that costs
several times what the function does. Maps that ask for something else, calls in parallel or
``synchronous``, stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

log = logging.getLogger(__name__)

# What TensorFlow's executor of a single thread does not know.
_CONTROL_FLOW = frozenset(
    (
        *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"),
        *("Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "Exit", "NextIteration"),
    )
)


@contextmanager
def in_the_asking_thread() -> Iterator[None]:
    """In the body, functions that are mapped one call after the other become cheap.

    To be used under the lock of ``seeded``, like all building of pipelines.
    """
    mapping = tf.data.Dataset.map

    def mapped(self: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        dataset = mapping(self, *args, **kwargs)
        try:
            _move(dataset)
        except AttributeError as error:  # another TensorFlow, whose datasets have other parts
            log.debug("mapped functions run in a pool of threads: %s", error)
        return dataset

    tf.data.Dataset.map = mapped
    try:
        yield
    finally:
        tf.data.Dataset.map = mapping


def _move(dataset: Any) -> None:
    """Let a dataset's function run in the asking thread, if it can; it is not traced again."""
    if type(dataset).__name__ != "_MapDataset":
        return
    function = dataset._map_func.function
    if _has_control_flow(function.graph) or dataset._force_synchronous:
        return
    dataset._variant_tensor_attr = tf.raw_ops.MapDataset(
        input_dataset=dataset._input_dataset._variant_tensor,
        other_arguments=function.captured_inputs,
        f=function,
        output_types=dataset._flat_types,
        output_shapes=dataset._flat_shapes,
        use_inter_op_parallelism=False,
        preserve_cardinality=True,
    )


def _has_control_flow(graph: Any) -> bool:
    definition = graph.as_graph_def()
    nodes = list(definition.node)
    for function in definition.library.function:
        nodes += function.node_def
    return any(node.op in _CONTROL_FLOW for node in nodes)
