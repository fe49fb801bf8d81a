"""The code that travels with a model: the classes and functions of a user, as source.

Definitions of a script or a notebook are taken out one by one, because all the rest of the script
must not run in workers. Modules that the script imports travel as whole files.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

import keras
import numpy as np

from edl_keras.definition_source import (
    Defined,
    DefinitionSource,
    find_assignment,
    find_needs,
    find_source,
)
from edl_keras.errors import kind_of, wrong_model
from edl_keras.user_modules import UserModules, is_main

_HEAD = '"""What the model needs of the code that called elasticdl.fit."""\n'
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_MAX_ARRAY_NBYTES = 1 << 20


class NoExpression(Exception):
    """A value cannot be written as Python."""


class SourceCode:
    """A module of Python that is written piece by piece.

    Attributes:
        modules: the files of other modules that it imports.
    """

    def __init__(self) -> None:
        self.modules = UserModules()
        self._parts: list[str] = []
        self._bound: dict[str, Any] = {}
        self._lambdas = 0

    @property
    def text(self) -> str:
        """The content of the module."""
        return "\n\n".join((_HEAD, *self._parts)) + "\n"

    def append(self, text: str) -> None:
        """Append statements as they are."""
        self._parts.append(text)

    def add(self, defined: Defined) -> str:
        """Add a class or a function; return the name that it has in this module.

        Raises:
            Problem: it has no source, or needs something that cannot travel.
        """
        known = next((name for name, value in self._bound.items() if value is defined), None)
        if known is not None:
            return known
        if defined.__name__ == "<lambda>":
            self._lambdas += 1
            name = f"lambda_{self._lambdas}"
        else:
            name = defined.__name__
        self._bind(name, defined, defined.__qualname__)
        return name

    def expression(self, value: Any) -> str:
        """Return an expression for a value; what it needs is in the module then.

        Raises:
            NoExpression: there is none.
            Problem: a class or function that belongs to the value cannot travel.
        """
        if isinstance(value, type | FunctionType):
            return self.add(value)
        if isinstance(value, list | tuple | set | frozenset):
            return self._collection(value)
        if type(value) is dict:
            items = (f"{self.expression(k)}: {self.expression(v)}" for k, v in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, np.generic):
            return self.expression(value.item())
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, PurePath):
            self._bind("Path", Path, "Path")
            return f"Path({str(value)!r})"
        if type(value) not in _PLAIN:
            return self._keras_object(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        return repr(value)

    def _collection(self, value: Any) -> str:
        kind = type(value)
        if kind not in (list, tuple, set, frozenset):
            raise NoExpression
        inner = ", ".join(self.expression(each) for each in value)
        if kind is list:
            return f"[{inner}]"
        return f"{kind.__name__}([{inner}])"

    def _array(self, value: np.ndarray[Any, Any]) -> str:
        if value.dtype.kind not in "biufcSU" or value.nbytes > _MAX_ARRAY_NBYTES:
            raise NoExpression
        self._bind("np", np, "np")
        return f"np.array({self.expression(value.tolist())}, {value.dtype.str!r})"

    def _keras_object(self, value: Any) -> str:
        """Return an expression for an object of Keras that is made of its configuration alone."""
        kind = type(value)
        if not kind.__module__.startswith("keras.") or not hasattr(value, "get_config"):
            raise NoExpression
        if getattr(value, "variables", None) or hasattr(value, "save_assets"):
            raise NoExpression
        try:
            config = json.dumps(keras.saving.serialize_keras_object(value))
        except Exception as error:  # Keras raises what it likes
            raise NoExpression from error
        self._bind("json", json, "json")
        self._bind("keras", keras, "keras")
        return f"keras.saving.deserialize_keras_object(json.loads({config!r}))"

    def _bind(self, name: str, value: Any, used_by: str) -> None:
        """Make a name of the module mean a value."""
        if name in self._bound:
            if self._bound[name] is not value and not _is_same(self._bound[name], value):
                raise wrong_model(
                    f"the name {name} means two different things in the code of the model",
                    f"Rename one of them: {used_by} uses one.",
                    where=name,
                )
            return
        self._bound[name] = value
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
            self._parts.append(f"import {value.__name__} as {name}")
        elif (origin := _importable(value)) is not None:
            self.modules.add(origin[0])
            self._parts.append(f"from {origin[0]} import {origin[1]} as {name}")
        elif isinstance(value, type | FunctionType):
            self._define(name, value)
        else:
            try:
                self._parts.append(f"{name} = {self.expression(value)}")
            except NoExpression:
                raise wrong_model(
                    f"{used_by} uses {name}, {kind_of(value)}, which cannot travel to workers",
                    f"Make {name} where it is used, or in a module that the script imports.",
                    where=used_by,
                ) from None

    def _define(self, name: str, value: Defined) -> None:
        source = find_source(value)
        for needed in source.needs:
            if needed != source.name and needed in source.values:
                self._provide(needed, source, value.__module__)
        if not source.name:
            self._parts.append(f"{name} = {source.text}")
            return
        self._parts.append(f"# {Path(source.place).name}\n{source.text}")
        if name != source.name:
            self._parts.append(f"{name} = {source.name}")

    def _provide(self, name: str, source: DefinitionSource, module: str) -> None:
        """Bind a name that a definition uses, by its value or by the statement that made it."""
        value = source.values[name]
        user = source.name or "a lambda expression"
        if name in self._bound or isinstance(value, type | FunctionType | ModuleType):
            self._bind(name, value, user)
            return
        try:
            text = f"{name} = {self.expression(value)}"
        except NoExpression:
            statement = find_assignment(module, name, source.place)
            if statement is None or _importable(value) is not None:
                self._bind(name, value, user)
                return
            self._bound[name] = value
            for needed in find_needs(statement):
                if needed in source.values:
                    self._provide(needed, source, module)
            text = statement
        self._bound[name] = value
        self._parts.append(text)


def _importable(value: Any) -> tuple[str, str] | None:
    """Return the module and the name from which other processes can import a value."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(value, type | FunctionType):
        name = getattr(value, "__name__", None) if callable(value) else None
    if not isinstance(module, str) or not isinstance(name, str) or is_main(module):
        return None
    if "." in name or getattr(sys.modules.get(module), name, None) is not value:
        return None
    return module, name


def _is_same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # of arrays, for example
        return False


def append_objects(code: SourceCode, objects: Mapping[str, Defined]) -> None:
    """Append ``OBJECTS``, the classes and functions by the names that Keras has for them."""
    items = [f"    {name!r}: {code.add(value)}," for name, value in sorted(objects.items())]
    code.append("\n".join(("OBJECTS = {", *items, "}")))
