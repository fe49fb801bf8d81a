"""Finds functions that broadcast labels of shape (n,) against outputs of shape (n, 1).

Such a loss compares each label with each output. Its mean looks like that of any other loss, so a
model trains without an error and learns nothing. A function that compares each output with its own
label changes its value if labels change places; one that compares all pairs does not. Neither does
one that compares nothing, such as the difference of two means, but its value is the same for labels
of the outputs' shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Measure = Callable[[Any, Any], Mapping[str, Any]]
"""Gets labels and outputs; returns numbers, or one number per example, by name."""

_OUTPUTS = ((0.2, 0.9), (-2.0, 4.0))
"""Low and high outputs, as probabilities and as logits: a function may take only one of them. They
are not symmetric to the labels 0 and 1, which would then look alike."""


def broadcast_shapes(measure: Measure, labels: Any, outputs: Any) -> dict[str, str]:
    """Find what compares each label with each output.

    Args:
        measure: a loss, or metrics.
        labels: of some examples; only shapes and dtypes count.
        outputs: of these examples; only shapes and dtypes count.

    Returns:
        Name to the shapes that it broadcasts, such as ``labels (n,) and outputs (n, 1)``.
    """
    flat_labels, flat_outputs = tf.nest.flatten(labels), tf.nest.flatten(outputs)
    found: dict[str, str] = {}
    if len(flat_labels) != len(flat_outputs):
        return found
    for position, (label, output) in enumerate(zip(flat_labels, flat_outputs, strict=True)):
        if _may_broadcast(label, output):
            shapes = f"labels {_shape(label)} and outputs {_shape(output)}"
            for name in _find_unpaired(measure, labels, outputs, position):
                found.setdefault(name, shapes)
    return found


def _may_broadcast(label: Any, output: Any) -> bool:
    """Whether the shapes differ, and only by dimensions of 1."""
    if not all(isinstance(each, tf.Tensor) and each.dtype != tf.string for each in (label, output)):
        return False
    one, two = list(label.shape[1:]), list(output.shape[1:])
    return one != two and [n for n in one if n != 1] == [n for n in two if n != 1]


def _shape(tensor: tf.Tensor) -> str:
    return str(("n", *tensor.shape[1:])).replace("'", "")


def _find_unpaired(measure: Measure, labels: Any, outputs: Any, position: int) -> set[str]:
    """Return the names of the values that depend on a label, but not on which example it has.

    Left out are those that labels of the outputs' shape would not change.
    """
    suspects, cleared = set[str](), set[str]()
    for low, high in _OUTPUTS:
        try:
            paired, swapped, *others = _trials(measure, labels, outputs, position, low, high)
        except Exception:
            continue  # these values do not suit the function; other trials report what it raises
        for name, value in paired.items():
            if not np.isfinite(value):
                continue
            if not np.isclose(value, swapped[name], 1e-5, 0):
                cleared.add(name)
            elif not any(np.isclose(value, each[name], 1e-5, 0) for each in others):
                suspects.add(name)
    return suspects - cleared


def _trials(
    measure: Measure, labels: Any, outputs: Any, position: int, low: float, high: float
) -> list[dict[str, float]]:
    """Return values for labels as they are, swapped, all 0, and in the shape of the outputs."""
    made_outputs = tf.nest.map_structure(lambda each: _make_examples(each, low, high), outputs)
    made_labels = [_make_examples(each, 0.0, 1.0) for each in tf.nest.flatten(labels)]
    label, shape = made_labels[position], tf.nest.flatten(made_outputs)[position].shape
    trials = []
    for one in (label, tf.roll(label, 1, 0), tf.zeros_like(label), tf.reshape(label, shape)):
        made_labels[position] = one
        values = measure(tf.nest.pack_sequence_as(labels, made_labels), made_outputs)
        trials.append({name: _number(value) for name, value in values.items()})
    return trials


def _make_examples(tensor: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Return three examples of the shape and dtype of a tensor's: one low, two high."""
    shape = tensor.shape[1:]
    return tf.cast(tf.stack([tf.fill(shape, value) for value in (low, high, high)]), tensor.dtype)


def _number(value: Any) -> float:
    return float(tf.reduce_mean(tf.cast(tf.convert_to_tensor(value), tf.float64)))
