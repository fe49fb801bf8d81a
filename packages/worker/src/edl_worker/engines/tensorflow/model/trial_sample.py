"""The labels and made-up outputs with which a dry run tries the loss and the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from edl_worker.core.batch import Batch

_RECORDS = 4


@dataclass(frozen=True, slots=True)
class TrialSample:
    """A sample of labels, and made-up outputs of the right shapes for them."""

    labels: Any
    outputs: Any
    size: int

    @classmethod
    def take(cls, batch: Batch, outputs: Any) -> TrialSample:
        """Take some records of a minibatch.

        Args:
            outputs: the specifications of the model's outputs.
        """
        size = min(_RECORDS, batch.size)
        return cls(
            tf.nest.map_structure(lambda tensor: tensor[:size], batch.labels),
            tf.nest.map_structure(lambda spec: _make_up(spec, size), outputs),
            size,
        )

    def part(self, records: slice) -> tuple[Any, Any]:
        """Return labels and outputs of some of the records."""
        labels, outputs = tf.nest.map_structure(
            lambda tensor: tensor[records], (self.labels, self.outputs)
        )
        return labels, outputs

    def repeat(self) -> tuple[Any, Any]:
        """Return outputs and labels in which each example occurs twice."""
        outputs, labels = tf.nest.map_structure(
            lambda tensor: tf.concat([tensor, tensor], 0), (self.outputs, self.labels)
        )
        return outputs, labels


def _make_up(spec: Any, rows: int) -> tf.Tensor:
    """Return numbers in [0, 1) in the shape of an output for ``rows`` records."""
    shape = [rows, *(size or 1 for size in spec.shape[1:])]
    values = tf.random.stateless_uniform(shape, seed=(1, 2))
    return tf.cast(values, spec.dtype)
