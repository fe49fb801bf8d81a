"""What a dataset's graph says about its execution."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2


def maps_in_pool(dataset: tf.data.Dataset) -> list[bool]:
    """For each mapped function, whether it runs in a thread pool."""
    graph = graph_pb2.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    return [
        node.attr["use_inter_op_parallelism"].b
        for node in graph.node
        if node.op in ("MapDataset", "ParallelMapDatasetV2")
    ]
