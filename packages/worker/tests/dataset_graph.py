"""What a dataset's graph says about its execution."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2


def maps_in_pool(dataset: tf.data.Dataset) -> list[bool]:
    """Return for each mapped function whether it runs in a thread pool."""
    return [
        node.attr["use_inter_op_parallelism"].b
        for node in _graph(dataset).node
        if node.op in ("MapDataset", "ParallelMapDatasetV2")
    ]


def takes_batches_apart(dataset: tf.data.Dataset) -> bool:
    """Return whether some step makes single elements of batches."""
    return any(node.op == "UnbatchDataset" for node in _graph(dataset).node)


def functions_of_one_device(dataset: tf.data.Dataset) -> list[bool]:
    """Return for each function whether it is marked as one of a single device."""
    functions = _graph(dataset).library.function
    return [function.attr["experimental_ints_on_device"].b for function in functions]


def _graph(dataset: tf.data.Dataset) -> graph_pb2.GraphDef:
    return graph_pb2.GraphDef.FromString(dataset._as_serialized_graph().numpy())
