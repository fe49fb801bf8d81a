"""Finds numbers that are not finite, and labels of text, in the arrays of ``fit``."""

from __future__ import annotations

import keras
import numpy as np

from edl.plugins.errors import Problem
from edl_keras.errors import wrong_argument
from edl_keras.fit_checks import overrides_step
from edl_keras.fit_data import ArrayData
from edl_keras.records import Array, flatten_arrays

_AT_ONCE = 1 << 22
"""Numbers that are looked at together."""


def check_values(model: keras.Model, data: ArrayData, argument: str = "") -> None:
    """Check that arrays have finite numbers, and that a loss of Keras gets numbers as labels.

    A model that gives finite outputs for a row with such a number may have it, and so may a loss
    that is not one of Keras.

    Args:
        argument: that the data is from, if it is neither x nor y.

    Raises:
        Problem: with the array, the row and the value.
    """
    has_own_loss = not _is_of_keras(model)
    for name, value in (("x", data.x), ("y", data.y), ("sample_weight", data.weights)):
        for path, array in flatten_arrays(value):
            label = name + "".join(f"[{part!r}]" for part in path)
            if name == "y" and array.dtype.kind in "OSU" and not has_own_loss:
                raise _texts(argument or name, label, array)
            place = _find_not_finite(array)
            if place is None or (name == "y" and has_own_loss):
                continue
            if name == "x" and _takes(model, data, place[0]):
                continue
            raise _not_finite(argument or name, label, array, place)


def _is_of_keras(model: keras.Model) -> bool:
    """Whether all losses of a model are those of Keras, and its training step is, too."""
    if overrides_step(model):
        return False
    given = keras.tree.flatten(getattr(model, "loss", None))
    return all(
        isinstance(each, str)
        or str(getattr(each, "__module__", type(each).__module__)).startswith("keras.")
        for each in given
    )


def _find_not_finite(array: Array) -> tuple[int, ...] | None:
    """Return where the first number is that is an infinity or no number; None if none is."""
    if array.dtype.kind != "f":
        return None
    size = max(1, int(np.prod(array.shape[1:])))
    for begin in range(0, len(array), max(1, _AT_ONCE // size)):
        part = array[begin : begin + max(1, _AT_ONCE // size)]
        if not np.isfinite(part).all():
            at = np.argwhere(~np.isfinite(part))[0]
            return (begin + int(at[0]), *(int(each) for each in at[1:]))
    return None


def _takes(model: keras.Model, data: ArrayData, row: int) -> bool:
    """Whether a model has finite outputs for a row with a number that is not finite."""
    try:
        one = keras.tree.map_structure(lambda array: array[row : row + 1], data.x)
        outputs = keras.tree.flatten(model(one))
        return all(bool(np.isfinite(np.asarray(each)).all()) for each in outputs)
    except Exception:  # of a model that is not built, or of the user: the job tells it
        return False


def _not_finite(argument: str, label: str, array: Array, place: tuple[int, ...]) -> Problem:
    rows = int((~np.isfinite(array.reshape(len(array), -1))).any(axis=1).sum())
    many = f", and {rows - 1} more rows have such values" if rows > 1 else ""
    value = array[place]
    found = f"np.isfinite({label})"
    axes = tuple(range(1, array.ndim))
    finite = f"{found}.all(axis={axes[0] if len(axes) == 1 else axes})" if axes else found
    return wrong_argument(
        argument,
        f"{label}[{', '.join(map(str, place))}] is {value}{many}",
        f"Fill such values in, or leave their rows out of all arrays: {finite} is true for the "
        "others.",
    )


def _texts(argument: str, label: str, array: Array) -> Problem:
    texts = list(dict.fromkeys(map(str, array.reshape(-1)[:1000])))
    return wrong_argument(
        argument,
        f"{label} has texts such as {texts[0]!r}, and the loss takes numbers",
        f'Give ({label} == {texts[0]!r}).astype("float32") for two classes, or the numbers of the '
        f"classes: classes, numbers = np.unique({label}, return_inverse=True).",
    )
