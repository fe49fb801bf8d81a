"""Finds losses of Keras that do not fit the labels or the outputs, and says which loss fits.

Only what is certain is refused: shapes and values that a loss cannot mean, and outputs from which
it cannot learn. What trains, but hardly as it was meant, is a warning. A function that the model
file defines is its own judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.model.description import LossFunction
from edl_worker.engines.tensorflow.model.label_ranges import (
    refuse_counts,
    refuse_range,
    warn_of_range,
)
from edl_worker.engines.tensorflow.model.loss_parts import (
    BINARY,
    CATEGORICAL,
    COUNTS,
    CROSSENTROPIES,
    DIVERGENCE,
    KNOWN_LOSSES,
    REGRESSIONS,
    SPARSE,
    LossPart,
    find_parts,
)

_FIX_SHAPES = (
    "Compare the shapes that the input function yields with those that the model, the loss and the "
    "metrics take."
)
_NO_CLASS = 10
"""Labels that are 0, or one number from this one on, have a scale. A smaller one may be a class."""


def find_misfit(
    loss: LossFunction, model: keras.Model, labels: Any, outputs: Any
) -> tuple[EdlError | None, tuple[str, ...]]:
    """Return the error for a loss that cannot be meant, or warnings of one that hardly is.

    Args:
        model: tells which activations its outputs have.
        labels: of a minibatch.
        outputs: their specifications, as the model returns them.
    """
    warnings = []
    for part in find_parts(loss.for_compile.get("loss"), model, labels, outputs):
        if (refusal := _refuse(part)) is not None:
            what, remedy = refusal
            error = EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"{part.loss} does not fit: {what} ({part.shapes})",
                where=loss.place,
                remedy=remedy,
            )
            return error, ()
        if text := _warn(part):
            warnings.append(f"{loss.place}: {text}")
    return None, tuple(warnings)


def explain_raised(error: Exception, place: str) -> EdlError | None:
    """Return the error for an exception of a loss of Keras that a function called.

    Returns:
        None if the loss is not to blame, or fits.
    """
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        name, values = frame.f_code.co_name, frame.f_locals
        is_loss = name in KNOWN_LOSSES
        if is_loss and frame.f_globals.get("__name__") == "keras.src.losses.losses":
            found = _refuse_shapes(name, values)
            if found is not None:
                what, shapes, remedy = found
                return EdlError(
                    ErrorCode.SHAPE_MISMATCH,
                    f"keras.losses.{name} does not fit: {what} ({shapes})",
                    where=place,
                    remedy=remedy,
                )
        trace = trace.tb_next
    return None


def _refuse_shapes(name: str, values: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return what is wrong with arguments of which only shapes are known, both shapes, a remedy."""
    labels, outputs = [
        tuple(getattr(values.get(each), "shape", None) or ()) for each in ("y_true", "y_pred")
    ]
    if not labels or not outputs:
        return None
    made = np.zeros([1, *(size or 1 for size in labels[1:])])
    part = LossPart(name, bool(values.get("from_logits")), made, outputs[1:])
    refusal = _refuse(part)
    return None if refusal is None else (refusal[0], part.shapes, refusal[1])


def _refuse(part: LossPart) -> tuple[str, str] | None:
    """Return what is wrong and what to do; None if the loss may be meant."""
    if not 0 <= part.smoothing <= 1:
        return (
            f"label_smoothing is {part.smoothing:g}, and it is a share from 0 to 1",
            f"Write label_smoothing={part.smoothing / 100:g}."
            if 1 < part.smoothing <= 50
            else "Write label_smoothing=0.1.",
        )
    if not part.shape or part.labels.size == 0:
        return None
    if part.loss == SPARSE:
        found = _refuse_sparse(part)
    elif part.loss in CATEGORICAL:
        found = _refuse_categorical(part)
    elif part.loss in BINARY:
        found = _refuse_binary(part)
    elif part.loss == DIVERGENCE:
        found = _refuse_shares(part) or _refuse_width(part)
    else:
        found = _refuse_constant(part) or _refuse_class_numbers(part)
        if part.loss == COUNTS:
            return found or refuse_counts(part)
        return found or (refuse_range(part) if part.loss in REGRESSIONS else None)
    return found or _refuse_constant(part) or _refuse_activation(part)


def _refuse_sparse(part: LossPart) -> tuple[str, str] | None:
    wanted = (part.shape[:-1], (*part.shape[:-1], 1))
    if part.classes > 1 and part.label_shape == part.shape:
        return (
            "it takes the number of the class, and the labels have one number per class",
            f"Use {_fitting('CategoricalCrossentropy', part)}, or yield the numbers of the "
            "classes: tf.argmax(label, -1).",
        )
    if part.classes == 1 and part.label_shape in wanted:
        return (
            "the output has a single class",
            f"For two classes use {_fitting('BinaryCrossentropy', part)}"
            f"{_with_sigmoid(part)}; for more, give the last layer one unit per class.",
        )
    if not _may_equal(part.label_shape, wanted):
        has_one = part.label_shape in ((), (1,))
        flatten = "Add keras.layers.Flatten(), or a global pooling, before the last layer."
        return "it takes one label per output", flatten if has_one else _FIX_SHAPES
    labels = part.labels[part.labels != part.ignored]
    if np.any(np.mod(labels, 1) != 0):
        return (
            f"it takes the number of the class, and a label is {_first(labels % 1 != 0, labels)}",
            'Use loss = "mse" and a last layer of one unit for numbers, or yield the number of the '
            "class.",
        )
    if labels.size and part.classes and (labels.min() < 0 or labels.max() >= part.classes):
        return _refuse_range(part, labels)
    return None


def _refuse_range(part: LossPart, labels: np.ndarray[Any, Any]) -> tuple[str, str]:
    low, high = int(labels.min()), int(labels.max())
    found = f"the labels are {low} to {high}" if low < high else f"the label is {low}"
    what = f"the output has the classes 0 to {part.classes - 1}, and {found}"
    if low == 1 and high == part.classes:
        return what, "Let the classes begin at 0: yield label - 1."
    if low < 0:
        return (
            what,
            "Yield numbers from 0 on; SparseCategoricalCrossentropy(ignore_class=-1) leaves "
            "examples without a class out.",
        )
    return (
        what,
        f"Give the last layer one unit per class (at least {high + 1}), or yield the numbers 0 to "
        f"{part.classes - 1}.",
    )


def _refuse_categorical(part: LossPart) -> tuple[str, str] | None:
    if part.classes == 1 and part.label_shape in (part.shape, part.shape[:-1]):
        return (
            "the output has a single class, for which it is always 0",
            f"For two classes use {_fitting('BinaryCrossentropy', part)}{_with_sigmoid(part)}; "
            "for more, give the last layer one unit per class.",
        )
    if part.label_shape in (part.shape[:-1], (*part.shape[:-1], 1)):
        return (
            "it takes one number per class, and the labels are the numbers of the classes",
            f"Use {_fitting('SparseCategoricalCrossentropy', part)}, or yield "
            f"tf.one_hot(label, {part.classes or 'classes'}).",
        )
    if part.has_empty_rows:
        return (
            f"an example has {part.classes} times 0 as its label, and so no class",
            f"tf.one_hot(label, {part.classes}) makes that of labels that are not 0 to "
            f"{part.classes - 1}: give it and the last layer more classes, or begin them at 0. An "
            "example that should not count has the sample weight 0.",
        )
    return _refuse_width(part)


def _refuse_binary(part: LossPart) -> tuple[str, str] | None:
    if part.classes > 1 and part.label_shape in (part.shape[:-1], (*part.shape[:-1], 1)):
        return (
            f"the output has {part.classes} numbers per example, and there is one label",
            f"Use {_fitting('SparseCategoricalCrossentropy', part)} for classes that exclude each "
            "other, or give the last layer one unit.",
        )
    wrong = (part.labels < 0) | (part.labels > 1)
    if wrong.any():
        label = _first(wrong, part.labels)
        different = np.unique(part.labels)
        if set(different) <= {-1.0, 1.0}:
            remedy = 'Yield 0 and 1: (label + 1) / 2; or use loss = "hinge".'
        elif len(different) == 2 and different[0] == 0 and different[1] >= _NO_CLASS:
            remedy = f"Yield 0 and 1: label / {different[1]:g}."
        elif part.are_whole:
            remedy = (
                "For more than two classes use keras.losses.SparseCategoricalCrossentropy(), and "
                'a last layer with one unit per class and activation="softmax".'
            )
        else:
            remedy = 'Yield numbers from 0 to 1, or use loss = "mse" and no activation.'
        return f"it takes labels from 0 to 1, and a label is {label}", remedy
    return _refuse_width(part)


def _refuse_shares(part: LossPart) -> tuple[str, str] | None:
    wrong = (part.labels < 0) | (part.labels > 1)
    if not wrong.any():
        return None
    return (
        f"it takes shares from 0 to 1, which add up to 1, and a label is "
        f"{_first(wrong, part.labels)}",
        'Yield label / tf.reduce_sum(label), or use loss = "mse".',
    )


def _refuse_class_numbers(part: LossPart) -> tuple[str, str] | None:
    """Refuse a loss of regressions that compares numbers of classes with one output per class."""
    is_one = part.label_shape in (part.shape[:-1], (*part.shape[:-1], 1))
    if part.classes > 1 and is_one and len(part.shape) == 1:
        return (
            f"the output has {part.classes} numbers per example, and there is one label",
            f"For classes use {_fitting('SparseCategoricalCrossentropy', part)}; to predict a "
            "number, give the last layer one unit.",
        )
    return _refuse_width(part)


def _refuse_width(part: LossPart) -> tuple[str, str] | None:
    """Refuse labels whose last dimension is another one than that of the output."""
    if len(part.label_shape) != len(part.shape) or not part.classes:
        return None
    width = part.label_shape[-1]
    if width == part.classes or 1 in (width, part.classes):
        return None
    return (
        f"there are {width} labels per example and {part.classes} outputs",
        f"Give the last layer {width} units, or yield {part.classes} labels.",
    )


def _refuse_constant(part: LossPart) -> tuple[str, str] | None:
    if part.activation != "softmax" or part.classes != 1:
        return None
    wanted = "no activation" if part.loss in REGRESSIONS else 'activation="sigmoid"'
    return (
        "a softmax over one unit is always 1, so training would change nothing",
        f"Give the last layer {wanted}.",
    )


_NO_PROBABILITIES = ("linear", "relu", "tanh", "elu", "selu", "gelu", "silu", "softplus")
"""Activations whose values are not all between 0 and 1."""


def _refuse_activation(part: LossPart) -> tuple[str, str] | None:
    if part.from_logits or part.activation not in _NO_PROBABILITIES:
        return None
    wanted = "sigmoid" if part.loss in BINARY else "softmax"
    is_linear = part.activation == "linear"
    named = "no activation" if is_linear else f"the activation {part.activation}"
    remedy = f'Give it activation="{wanted}"'
    if is_linear and part.loss in CROSSENTROPIES:
        kind = "".join(word.title() for word in part.loss.split("_"))
        remedy += f", or use keras.losses.{kind}(from_logits=True)"
    return f"it takes probabilities, and the last layer has {named}", f"{remedy}."


def _warn(part: LossPart) -> str:
    """Return what is probably not meant, and what to do; empty if there is nothing."""
    if part.from_logits and part.activation in ("softmax", "sigmoid"):
        return (
            f"{part.loss} with from_logits=True gets the probabilities of a {part.activation}: "
            "leave from_logits or the activation out"
        )
    if part.loss in REGRESSIONS:
        return warn_of_range(part)
    if part.loss in BINARY and part.activation == "softmax" and part.are_one_hot:
        return (
            f"{part.loss} takes each of the {part.classes} outputs of a softmax for a question of "
            f"its own ({part.shapes}): categorical_crossentropy fits classes that exclude each "
            "other"
        )
    if part.loss in (SPARSE, *CATEGORICAL) and part.activation == "sigmoid":
        fits = (
            'a last layer with activation="softmax" fits it'
            if part.loss == SPARSE or part.are_one_hot
            else "binary_crossentropy fits labels that do not exclude each other"
        )
        return f"{part.loss} gets the outputs of a sigmoid ({part.shapes}): {fits}"
    if part.loss in CATEGORICAL and part.label_shape == part.shape and not part.are_one_hot:
        return (
            f"{part.loss} takes labels that add up to 1 per example, and they do not "
            f"({part.shapes}): binary_crossentropy fits labels that do not exclude each other"
        )
    return ""


def _may_equal(shape: tuple[int, ...], wanted: Sequence[tuple[int | None, ...]]) -> bool:
    return any(
        len(shape) == len(each)
        and all(b is None or a == b for a, b in zip(shape, each, strict=True))
        for each in wanted
    )


def _fitting(kind: str, part: LossPart) -> str:
    """Return the call that makes a loss of Keras for the outputs as they are."""
    has_logits = part.from_logits or part.activation == "linear"
    return f"keras.losses.{kind}({'from_logits=True' if has_logits else ''})"


def _with_sigmoid(part: LossPart) -> str:
    is_softmax = part.activation == "softmax"
    return ' and activation="sigmoid" in the last layer' if is_softmax else ""


def _first(found: Any, labels: np.ndarray[Any, Any]) -> str:
    return f"{labels[found].flat[0]:g}"


def weights_error(weights: Any, size: int, place: str) -> EdlError:
    """Return the error for sample weights with which a loss raises, and without which it does not.

    Args:
        size: number of examples.
        place: of the input function.
    """
    shapes = " and ".join(str(tuple(each.shape)) for each in tf.nest.flatten(weights))
    return EdlError(
        ErrorCode.SHAPE_MISMATCH,
        f"the sample weights of {size} examples have the shape {shapes}, which does not fit the "
        "losses",
        where=place,
        remedy="Yield one weight per example: a number as third part of each example.",
    )
