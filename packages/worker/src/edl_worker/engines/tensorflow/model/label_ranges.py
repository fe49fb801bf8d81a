"""Compares the labels with what an output can be, and with what a loss of numbers can take."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edl_worker.engines.tensorflow.model.loss_parts import LossPart

_REACHED: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("sigmoid", "hard_sigmoid", "softmax"), (0.0, 1.0)),
    **dict.fromkeys(("tanh", "hard_tanh", "softsign"), (-1.0, 1.0)),
    **dict.fromkeys(("relu", "softplus", "exponential"), (0.0, math.inf)),
    "relu6": (0.0, 6.0),
}
"""The smallest and the greatest output of an activation."""
_SLACK = 0.01
"""Labels that are so little beyond the outputs are rounded ones."""
_TOO_MANY, _DOUBTFUL = 0.5, 0.1
"""Shares of the labels beyond the outputs: from which on the loss cannot be meant, and hardly."""
_SIGNED = ("linear", "tanh", "elu", "selu", "gelu", "silu", "softsign", "leaky_relu")
"""Activations with negative outputs, which have no logarithm."""


def refuse_range(part: LossPart) -> tuple[str, str] | None:
    """Return what is wrong with the labels of a regression and what to do; None if nothing is."""
    found = _beyond(part)
    if found.size == 0 or found.mean() <= _TOO_MANY:
        return None
    return _say(part), _remedy(part)


def warn_of_range(part: LossPart) -> str:
    """Return what is hardly meant of a regression, and what to do; empty if nothing is."""
    found = _beyond(part)
    if found.size and found.mean() >= _DOUBTFUL:
        return f"{_say(part)}, {found.mean():.0%} of them beyond. {_remedy(part)}"
    if part.loss == "mean_absolute_percentage_error" and (part.labels == 0).any():
        return (
            f"{part.loss} divides by the label, and a label is 0: such an example counts millions "
            'of times as much as others. Use "mae", or leave these examples out'
        )
    if part.loss == "mean_squared_logarithmic_error" and (part.labels < 0).any():
        return (
            f"{part.loss} takes the logarithm of 1 + label, and counts a negative label such as "
            f'{part.labels.min():g} as 0. Use "mse" for labels with a sign'
        )
    return ""


def refuse_counts(part: LossPart) -> tuple[str, str] | None:
    """Return what is wrong with labels or outputs of a loss of counts; None if nothing is."""
    if (part.labels < 0).any():
        return (
            f"it takes counts, and a label is {part.labels.min():g}",
            'Yield labels from 0 on, or use loss = "mse".',
        )
    if part.activation in _SIGNED:
        named = "no activation" if part.activation == "linear" else part.activation
        return (
            f"it takes the logarithm of the outputs, and the last layer has {named}, so that an "
            "output may be negative",
            'Give it activation="softplus" or "exponential".',
        )
    return None


def _beyond(part: LossPart) -> npt.NDArray[np.bool_]:
    """Return for each label whether no output can be it; nothing if all outputs may be."""
    low, high = _REACHED.get(part.activation, (-math.inf, math.inf))
    if math.isinf(low) and math.isinf(high):
        return np.zeros(0, bool)
    found: npt.NDArray[np.bool_] = (part.labels < low - _SLACK) | (part.labels > high + _SLACK)
    return found


def _say(part: LossPart) -> str:
    low, high = _REACHED[part.activation]
    reached = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} and more"
    smallest, greatest = part.labels.min(), part.labels.max()
    labels = f"are {smallest:.6g} to {greatest:.6g}" if smallest < greatest else f"are {greatest:g}"
    return f"the outputs of {part.activation} are {reached}, and the labels {labels}"


def _remedy(part: LossPart) -> str:
    low, high = _REACHED[part.activation]
    into = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} on"
    return f"Give the last layer no activation, or yield labels from {into}."
