"""Finds what the losses of Keras in a model file compare: which labels with which output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import producer

SPARSE = "sparse_categorical_crossentropy"
CATEGORICAL = ("categorical_crossentropy", "categorical_focal_crossentropy")
BINARY = ("binary_crossentropy", "binary_focal_crossentropy")
CROSSENTROPIES = (SPARSE, *CATEGORICAL, *BINARY)
REGRESSIONS = (
    *("mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error"),
    *("mean_squared_logarithmic_error", "huber", "log_cosh"),
)

MARGINS = ("hinge", "squared_hinge", "categorical_hinge")
COUNTS, DIVERGENCE = "poisson", "kl_divergence"
KNOWN_LOSSES = (*CROSSENTROPIES, *REGRESSIONS, *MARGINS, COUNTS, DIVERGENCE)


@dataclass(frozen=True, slots=True)
class LossPart:
    """A loss of Keras with the labels and the output that it compares.

    Attributes:
        loss: its name, as in ``keras.losses``.
        from_logits: as it was given to the loss.
        labels: of a minibatch.
        shape: of the output, without the dimension of the examples.
        activation: of the layer that makes the output; empty if it is not known.
        ignored: a class that the loss leaves out; None if there is none.
        smoothing: the share of each label that goes to the other classes.
    """

    loss: str
    from_logits: bool
    labels: np.ndarray[Any, Any]
    shape: tuple[int | None, ...]
    activation: str = ""
    ignored: int | None = None
    smoothing: float = 0.0

    @property
    def label_shape(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.labels.shape[1:])

    @property
    def classes(self) -> int:
        """The last dimension of the output; 0 if it is not known."""
        return (self.shape[-1] or 0) if self.shape else 0

    @property
    def are_whole(self) -> bool:
        """Whether all labels are whole numbers from 0 on, as numbers of classes are."""
        return bool(np.all(self.labels >= 0) and np.all(np.mod(self.labels, 1) == 0))

    @property
    def are_one_hot(self) -> bool:
        """Whether the labels are one number per class, which add up to 1 for each example."""
        return bool(
            self.label_shape == self.shape
            and self.classes > 1
            and np.all(self.labels >= 0)
            and np.allclose(self.labels.sum(-1), 1, atol=1e-3)
        )

    @property
    def has_empty_rows(self) -> bool:
        """Whether the labels are one-hot, but for some that are all 0."""
        if len(self.label_shape) != 1 or self.label_shape != self.shape or self.classes < 2:
            return False
        sums = self.labels.sum(-1)
        return bool(
            np.all((self.labels == 0) | (self.labels == 1))
            and 0.0 in sums
            and set(sums) <= {0.0, 1.0}
        )

    @property
    def shapes(self) -> str:
        return f"labels {show_shape(self.label_shape)}, outputs {show_shape(self.shape)}"


def find_parts(value: Any, model: keras.Model, labels: Any, outputs: Any) -> Iterator[LossPart]:
    """Yield the losses of Keras in the loss of a model, as far as it is clear what they compare."""
    names = list(getattr(model, "output_names", None) or ())
    flat = tf.nest.flatten(outputs)
    activations = _find_activations(model, len(flat))
    if isinstance(value, Mapping):
        # tf.nest flattens mappings in the order of their keys.
        keys = sorted(outputs) if isinstance(outputs, Mapping) else names
        by_name = dict(zip(keys, zip(flat, activations, strict=True), strict=False))
        given = labels if isinstance(labels, Mapping) else {}
        for key in value.keys() & by_name.keys() & given.keys():
            yield from _make_part(value[key], given[key], *by_name[key])
        return
    losses = list(value) if isinstance(value, list | tuple) else [value]
    flat_labels = tf.nest.flatten(labels)
    if len(losses) == len(flat_labels) == len(flat) and not isinstance(labels, Mapping):
        for each, label, output, activation in zip(
            losses, flat_labels, flat, activations, strict=True
        ):
            yield from _make_part(each, label, output, activation)


def _make_part(loss: Any, labels: Any, output: Any, activation: str) -> Iterator[LossPart]:
    """Yield the part of a loss of Keras; nothing for other losses, or for labels of text."""
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:
            return
    function, settings = getattr(loss, "fn", loss), _settings_of(loss)
    name = getattr(function, "__name__", "")
    module = str(getattr(function, "__module__", ""))
    if (
        name not in KNOWN_LOSSES
        or not module.startswith("keras.")
        or not isinstance(labels, tf.Tensor)
        or labels.dtype == tf.string
        or getattr(output, "shape", None) is None
        or output.shape.rank in (None, 0)
        or settings.get("axis", -1) != -1
    ):
        return
    numbers = tf.cast(labels, tf.float64).numpy()
    if np.isfinite(numbers).all():
        yield LossPart(
            name,
            bool(settings.get("from_logits")),
            numbers,
            tuple(output.shape[1:]),
            activation,
            settings.get("ignore_class"),
            float(settings.get("label_smoothing") or 0.0),
        )


def _settings_of(loss: Any) -> Mapping[str, Any]:
    """Return the arguments that a loss of Keras was made with."""
    try:
        return loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    except Exception:  # of a class of the model file
        return {}


def _find_activations(model: keras.Model, count: int) -> Sequence[str]:
    """Return the activations of a model's outputs; empty ones if they are not so many."""
    found = output_activations(model)
    return found if len(found) == count else [""] * count


def output_activations(model: keras.Model) -> list[str]:
    """Return the activations of a model's outputs, in the order of ``tf.nest``.

    They are empty where they are not known; the list is, if the outputs are not.
    """
    tensors = tf.nest.flatten(getattr(model, "outputs", None) or [])
    if isinstance(getattr(model, "output", None), Mapping):
        tensors = tf.nest.flatten(dict(model.output))
    return [_find_activation(each) for each in tensors]


def _find_activation(tensor: Any) -> str:
    layer, number = producer(tensor) or (None, 0)
    if isinstance(layer, keras.Model):
        outputs = tf.nest.flatten(layer.outputs or [])
        return _find_activation(outputs[number]) if outputs else ""
    if isinstance(layer, keras.layers.Softmax | keras.layers.ReLU):
        return type(layer).__name__.lower()
    known = (keras.layers.Dense, keras.layers.Activation)
    return getattr(layer.activation, "__name__", "") if isinstance(layer, known) else ""


def show_shape(shape: Sequence[int | None]) -> str:
    """Return a shape for a sentence: ``(n, 3)``, where n is the number of examples."""
    return str(("n", *shape)).replace("'", "")
