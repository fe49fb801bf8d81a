"""The functions of a model's outputs that ``--postprocess`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode

Values = npt.NDArray[Any]


def postprocess(name: str, output: Any, function: str) -> Values:
    """Apply a function to an output along its last dimension.

    Args:
        name: of the output.
        output: numbers of shape (records, ...).
        function: argmax, sigmoid or softmax; empty: the output stays as it is.

    Raises:
        EdlError: USAGE, the output is no input for the function.
    """
    values = np.asarray(output)
    if not function:
        return values
    if values.dtype.kind not in "fiub" and values.dtype.name != "bfloat16":
        raise _unsuitable_error(name, function, f"has dtype {values.dtype}")
    if function != "sigmoid" and (values.ndim < 2 or values.shape[-1] < 2):
        shown = ", ".join(["n", *map(str, values.shape[1:])])
        raise _unsuitable_error(name, function, f"has shape ({shown}), one value per record")
    return _FUNCTIONS[function](values)


def warn_of_activations(function: str, activations: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if a function makes probabilities of outputs that are probabilities.

    Args:
        activations: of the outputs.
    """
    found = next((each for each in activations if each in ("sigmoid", "softmax")), "")
    if not found or function not in ("sigmoid", "softmax"):
        return ()
    return (
        f"--postprocess {function} is applied to probabilities, as the model ends in a {found}, "
        "and what it gives is none: leave --postprocess out, or name argmax.",
    )


def _argmax(values: Values) -> Values:
    found: Values = np.argmax(values, axis=-1).astype(np.int64)
    return found


def _sigmoid(values: Values) -> Values:
    # 1 / (1 + exp(-x)), which overflows for large negative x.
    found: Values = 0.5 * (1.0 + np.tanh(0.5 * _floats(values)))
    return found.astype(np.float32)


def _softmax(values: Values) -> Values:
    floats = _floats(values)
    powers = np.exp(floats - floats.max(axis=-1, keepdims=True))
    found: Values = powers / powers.sum(axis=-1, keepdims=True)
    return found.astype(np.float32)


def _floats(values: Values) -> Values:
    return values.astype(np.float64)


_FUNCTIONS: Mapping[str, Callable[[Values], Values]] = {
    "argmax": _argmax,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
}


def _unsuitable_error(name: str, function: str, why: str) -> EdlError:
    return EdlError(
        ErrorCode.USAGE,
        f"{function} cannot be applied to the output {name}: it {why}",
        where=f"--postprocess {function}, output {name}",
        remedy="Leave --postprocess out; --postprocess sigmoid is for outputs of one value."
        if function != "sigmoid"
        else "Leave --postprocess out.",
    )
