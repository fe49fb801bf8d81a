"""Remedies for what people often get wrong in a model file, by the message of the exception."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """The meaning of an exception.

    Attributes:
        remedy: what the user should do.
        meaning: a sentence that is clearer than the exception's message; empty if there is none.
    """

    remedy: str
    meaning: str = ""


_NO_VALUES = (
    "The function is traced, so its tensors have no values yet. Use operations of TensorFlow here; "
    "tf.py_function(f, [x], dtype) runs Python code."
)
_CREATE_ONCE = (
    "Create layers and variables once, in __init__ or build (self.dense = keras.layers.Dense(8)), "
    "and only call them in call."
)
_KERAS_2 = (
    "Objects of tf_keras (Keras 2) and of Keras 3 do not fit together: import all of them from "
    "keras, or from tf.keras without TF_USE_LEGACY_KERAS."
)

# Pattern of a message, and what it means; {0} is the first group of the pattern.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"no attribute '(numpy|item|tolist)'|numpy\(\) is only available", _NO_VALUES, ""),
    (
        r"Iterating over a symbolic|Using a symbolic `?tf.Tensor`? as a Python `?bool",
        "The function is traced, so its tensors have no values for Python's if, while and for. "
        "Use tf.cond, tf.where and operations on whole tensors.",
        "",
    ),
    (
        r"'(\w+)' must also be initialized in the (?:else|main) branch",
        "Give {0} a value before the if, or in both branches: it depends on a tensor.",
        "",
    ),
    (
        r"only supports singleton tf.Variables|create variables on a non-first call"
        r"|cannot add new elements of state|could not be lifted out of a `tf.function`",
        _CREATE_ONCE,
        "creates a layer or variable in call, which would be a new one on each call",
    ),
    (
        r"A KerasTensor (?:cannot be used as input to a TensorFlow|is symbolic)",
        "Use functions of keras.ops on outputs of layers, or call TensorFlow in the call method of "
        "a layer of your own.",
        "",
    ),
    (r"tf_keras", _KERAS_2, ""),
)


def explain(error: BaseException, message: str) -> Explanation | None:
    """Return what an exception means, if it is a known one.

    Args:
        message: of the exception, as users see it.
    """
    for pattern, remedy, meaning in _KNOWN:
        match = re.search(pattern, message)
        if match is not None:
            groups = [each or "" for each in match.groups()]
            return Explanation(remedy.format(*groups) if groups else remedy, meaning)
    for find in _FINDERS:
        if (near := find(error)) is not None:
            return Explanation(near)
    return None


def _find_attribute(error: BaseException) -> str | None:
    """Return a suggestion for a name that a module or an object does not have."""
    owner = getattr(error, "obj", None)
    if not isinstance(error, AttributeError) or owner is None or not error.name:
        return None
    return did_you_mean(error.name, [name for name in dir(owner) if not name.startswith("_")])


def _find_import(error: BaseException) -> str | None:
    """Return a suggestion for a name that a module does not have."""
    match = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
    if not isinstance(error, ImportError) or match is None:
        return None
    module = sys.modules.get(match.group(2))
    return did_you_mean(match.group(1), [] if module is None else dir(module))


_FINDERS: tuple[Callable[[BaseException], str | None], ...] = (_find_attribute, _find_import)


def did_you_mean(name: str, known: list[str]) -> str | None:
    """Return "Did you mean …?" with the names that are nearest to another; None: none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(
        name.lower(), by_lower, n=1, cutoff=0.93
    ) or difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.75)
    return f"Did you mean {' or '.join(by_lower[each] for each in near)}?" if near else None
