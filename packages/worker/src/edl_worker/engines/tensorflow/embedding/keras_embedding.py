"""Keras's own Embedding layers that are large enough to be served row by row."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edl_worker.engines.tensorflow.embedding import lookup_stages
from edl_worker.engines.tensorflow.internals import embedding_variable, nested_layers

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class ServedKerasEmbedding:
    """A Keras Embedding layer whose lookups go to a table while a job trains.

    The layer keeps its variable: it holds the initial values, and at the end the trained ones.
    """

    layer: keras.layers.Embedding

    @property
    def dim(self) -> int:
        return int(self.layer.output_dim)

    @property
    def variable(self) -> Any:
        return self.layer.embeddings

    def redirect_lookups(self) -> None:
        """Redirect lookups of a traced step to the current lookup stage."""
        plain = self.layer.call
        layer = self.layer

        def call(inputs: Any) -> Any:
            stage = lookup_stages.current()
            if stage is None:
                return plain(inputs)
            rows = stage.lookup(self, tf.cast(inputs, tf.int64), self.dim)
            return tf.cast(rows, layer.compute_dtype)

        layer.call = call

    def restore_lookups(self) -> None:
        """Make lookups read the layer's variable again."""
        self.layer.__dict__.pop("call", None)

    def check(self, ids: npt.NDArray[np.int64]) -> None:
        """Refuse ids that the layer has no rows for. Raises: ValueError: there are some."""
        outside = ids[(ids < 0) | (ids >= self.layer.input_dim)]
        if outside.size:
            raise ValueError(
                f"layer {self.layer.name}: id {outside[0]} is not in [0, {self.layer.input_dim})"
            )


def large_embeddings(model: keras.Model, threshold: int) -> list[ServedKerasEmbedding]:
    """Return the layers of a model that can be served as tables with the same results.

    Args:
        threshold: numbers that a layer must have at least; 0: no layer has enough.
    """
    return [
        ServedKerasEmbedding(layer)
        for layer in nested_layers(model)
        if threshold and type(layer) is keras.layers.Embedding and _can_be_table(layer, threshold)
    ]


def _can_be_table(layer: keras.layers.Embedding, threshold: int) -> bool:
    if not layer.built or layer.input_dim * layer.output_dim < threshold:
        return False
    variable = embedding_variable(layer)
    return (
        variable is not None
        and variable.trainable
        and keras.backend.standardize_dtype(variable.dtype) == "float32"
        and variable.constraint is None
        and variable.regularizer is None
        and not layer.lora_enabled
    )
