"""The state of callbacks as JSON, which passes between workers without any code.

An attribute is kept if it is made of None, numbers, texts, bytes, paths, lists, tuples, sets, dicts
and NumPy arrays. Others stay behind where the next worker makes its own: functions and layers, open
files, and what has not changed since the training began.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path, PosixPath
from typing import Any

import keras
import numpy as np

from edl_proto.errors import EdlError, ErrorCode

_UNSAVED_ATTRIBUTES = frozenset({"_model", "model", "params"})
_PLAIN = (type(None), bool, int, float, str)
_NUMERIC_KINDS = "biufcSU"
_FUNCTIONS = {"less": keras.ops.less, "greater": keras.ops.greater}
"""Functions that Keras's callbacks choose when they first see a value."""

Attributes = dict[str, Any]
Fingerprints = Mapping[str, bytes]


class _NotKept(Exception):
    """A value has no form in JSON."""


def take_fingerprints(callback: keras.callbacks.Callback) -> Fingerprints:
    """Return the attributes that cannot be kept, in a form in which changes show."""
    found = {}
    for name, value in _attributes(callback).items():
        try:
            _encode(value)
        except _NotKept:
            found[name] = _fingerprint(value)
    return found


def encode(
    callbacks: Sequence[keras.callbacks.Callback | None], before: Sequence[Fingerprints]
) -> bytes:
    """Return what callbacks remember.

    Args:
        callbacks: None for one that remembers nothing.
        before: of each callback, when the training began.

    Raises:
        EdlError: MODEL_CONTRACT, a callback has changed an attribute that cannot be kept.
    """
    kept = [
        {} if callback is None else _encode_attributes(callback, fingerprints)
        for callback, fingerprints in zip(callbacks, before, strict=True)
    ]
    return json.dumps(kept, separators=(",", ":")).encode()


def decode(state: bytes) -> list[Attributes]:
    """Return the attributes of each callback.

    Raises:
        ValueError: these bytes are none of ``encode``.
    """
    try:
        return [
            {
                name: _decode(value)
                for name, value in kept.items()
                if name not in _UNSAVED_ATTRIBUTES
            }
            for kept in json.loads(state)
        ]
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(str(error)) from error


def _attributes(callback: keras.callbacks.Callback) -> Attributes:
    return {
        name: value for name, value in vars(callback).items() if name not in _UNSAVED_ATTRIBUTES
    }


def _encode_attributes(callback: keras.callbacks.Callback, before: Fingerprints) -> Attributes:
    kept = {}
    for name, value in _attributes(callback).items():
        try:
            kept[name] = _encode(value)
        except _NotKept:
            now = _fingerprint(value)
            if now and now != before.get(name):
                raise EdlError(
                    ErrorCode.MODEL_CONTRACT,
                    f"the callback {type(callback).__name__} has changed its attribute {name}, and "
                    f"another worker cannot be given a {type(value).__qualname__} as it is now",
                    where="callbacks",
                    remedy="Keep what it remembers in numbers, texts, lists, dicts or NumPy "
                    "arrays; its class must be that of Python or NumPy itself.",
                ) from None
    return kept


def _fingerprint(value: Any) -> bytes:
    """Return bytes that are equal while a value has not changed; empty if it has no state."""
    if isinstance(value, keras.Model | keras.layers.Layer | keras.Variable):
        return b""
    try:
        return pickle.dumps(value)  # never loaded
    except Exception:
        return b""


def _encode(value: Any) -> Any:
    try:
        return _encode_value(value)
    except RecursionError:
        raise _NotKept from None


def _encode_value(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [_encode_value(each) for each in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [_encode_value(each) for each in value]}
    if kind is dict:
        return {"dict": [[_encode_value(k), _encode_value(v)] for k, v in value.items()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if kind is PosixPath:
        return {"path": str(value)}
    if isinstance(value, np.generic) or kind is np.ndarray:
        return _encode_array(value)
    for name, function in _FUNCTIONS.items():
        if value is function:
            return {"function": name}
    raise _NotKept


def _encode_array(value: np.ndarray | np.generic) -> Any:
    if value.dtype.kind not in _NUMERIC_KINDS:
        raise _NotKept
    content = base64.b64encode(value.tobytes()).decode()
    is_array = isinstance(value, np.ndarray)
    return {"array" if is_array else "scalar": [value.dtype.str, list(value.shape), content]}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "tuple" | "set" | "frozenset":
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](map(_decode, content))
        case "dict":
            return {_decode(key): _decode(each) for key, each in content}
        case "bytes":
            return base64.b64decode(content)
        case "path":
            return Path(content)
        case "array" | "scalar":
            dtype, shape, packed = content
            array = np.frombuffer(base64.b64decode(packed), np.dtype(dtype)).reshape(shape)
            return array.copy() if kind == "array" else array[()]
        case "function":
            return _FUNCTIONS[content]
    raise ValueError(f"there is no kind {kind}")
