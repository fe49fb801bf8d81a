"""Kinds of framework objects by the names of their classes: no framework is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def derives_from(kind: type, package: str, name: str) -> bool:
    """Return whether a class is, or inherits from, the class ``name`` of an installed package."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package
        for base in kind.__mro__
    )


def is_model_class(kind: type) -> bool:
    """Return whether a class is a model of Keras 3."""
    return derives_from(kind, "keras", "Model")


def is_of_keras(definition: Any) -> bool:
    """Return whether a function or class belongs to Keras 3 itself."""
    return str(definition.__module__).partition(".")[0] == "keras"


def is_tensorflow_error(error: BaseException, name: str = "OpError") -> bool:
    """Return whether an error is one of ``tf.errors``: any, or the one of this name."""
    return derives_from(type(error), "tensorflow", name)


def leaves(nest: Any) -> Iterator[Any]:
    """Yield the parts of a nest of dictionaries, lists and tuples; None is a part, too."""
    match nest:
        case Mapping():
            for part in nest.values():
                yield from leaves(part)
        case list() | tuple():
            for part in nest:
                yield from leaves(part)
        case _:
            yield nest


def map_leaves(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return a nest of the same form with what a function returns for each part."""
    match nest:
        case Mapping():
            return {name: map_leaves(function, part) for name, part in nest.items()}
        case list() | tuple():
            parts = [map_leaves(function, part) for part in nest]
            # A named tuple is a class of its own, and takes its parts one by one.
            return type(nest)(parts) if type(nest) in (list, tuple) else type(nest)(*parts)
        case _:
            return function(nest)


def dtype_name(part: Any) -> str:
    """Return the name of the dtype of a tensor or array, such as ``string``; empty without one."""
    dtype = getattr(part, "dtype", None)
    return "" if dtype is None else str(getattr(dtype, "name", dtype))
