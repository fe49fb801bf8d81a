"""Finds undefined names in functions of a model file without running them.

A loss with a misspelled name would fail only at the first step, after the workers have started and
read data. The byte code of a function shows earlier which names it loads.
"""

from __future__ import annotations

import builtins
import difflib
import dis
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.frames import UserFrame
from edl_worker.model_file.known_names import replacement_of
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.importer import ModelZoo

# Code that uses one of these names expects that other names may be missing.
_TOLERANT_NAMES = frozenset(
    ("NameError", "AttributeError", "hasattr", "getattr", "__version__", "VERSION")
)
_IMPORTS = {
    "tf": "import tensorflow as tf",
    "np": "import numpy as np",
    "keras": "import keras",
    "pd": "import pandas as pd",
    "Mode": "from elasticdl.python.common.constants import Mode",
    "ElasticDLSpec": "from elasticdl import ElasticDLSpec",
}


def undefined_names(values: Iterable[Any], zoo: ModelZoo) -> list[EdlError]:
    """Return the undefined names in functions and classes of the zoo and in what they call.

    Global names that ``compatibility`` provides are put into the module, with a warning.
    """
    errors: list[EdlError] = []
    seen: set[CodeType] = set()
    waiting = [function for value in values for function in _functions_of(value, zoo)]
    while waiting:
        function = waiting.pop(0)
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        for code in _nested_code(function.__code__):
            errors.extend(_check(code, function))
        for name in sorted(_loaded_globals(function.__code__)):
            waiting.extend(_functions_of(function.__globals__.get(name), zoo))
    return errors


def _functions_of(value: Any, zoo: ModelZoo) -> list[FunctionType]:
    """Return the zoo's functions in a function, method, partial, class or instance."""
    value = inspect.unwrap(value) if callable(value) else value
    value = getattr(value, "func", value)
    value = getattr(value, "__func__", value)
    if isinstance(value, property):
        value = value.fget
    if inspect.isfunction(value):
        return [value] if _is_of(value.__globals__, zoo) else []
    if isinstance(value, ModuleType):
        return []
    cls = value if inspect.isclass(value) else type(value)
    module = inspect.getmodule(cls)
    if module is None or not zoo.contains(module):
        return []
    return [
        function
        for base in cls.__mro__
        for item in vars(base).values()
        for function in _functions_of_member(item, zoo)
    ]


def _functions_of_member(item: Any, zoo: ModelZoo) -> list[FunctionType]:
    if isinstance(item, staticmethod | classmethod | property) or inspect.isfunction(item):
        return _functions_of(item, zoo)
    return []


def _is_of(module_globals: dict[str, Any], zoo: ModelZoo) -> bool:
    module = ModuleType("globals")
    module.__loader__ = module_globals.get("__loader__")
    return zoo.contains(module)


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_code(constant)


def _loaded_globals(code: CodeType) -> set[str]:
    return {
        instruction.argval
        for inner in _nested_code(code)
        for instruction in dis.get_instructions(inner)
        if instruction.opname == "LOAD_GLOBAL"
    }


def _stored_globals(module_globals: dict[str, Any]) -> set[str]:
    """Return names that functions of a module declare ``global`` and set."""
    return {
        instruction.argval
        for value in module_globals.values()
        if inspect.isfunction(value) and value.__globals__ is module_globals
        for inner in _nested_code(value.__code__)
        for instruction in dis.get_instructions(inner)
        if instruction.opname == "STORE_GLOBAL"
    }


def _check(code: CodeType, function: FunctionType) -> Iterator[EdlError]:
    if _TOLERANT_NAMES & set(code.co_names):
        return
    line = code.co_firstlineno
    reported: set[str] = set()
    owner: Any = None  # the module that the next attribute is loaded from
    path = ""
    for instruction in dis.get_instructions(code):
        line = _line(instruction) or line
        name = instruction.argval
        match instruction.opname:
            case "LOAD_GLOBAL":
                owner, path = function.__globals__.get(name), name
                if name not in reported and not _is_defined(name, function):
                    reported.add(name)
                    if not _provide_global(name, function, (code.co_filename, line)):
                        yield _undefined_error(name, code, function, line)
            case "LOAD_ATTR" | "LOAD_METHOD" if isinstance(owner, ModuleType):
                path = f"{path}.{name}"
                if path not in reported and not hasattr(owner, name):
                    reported.add(path)
                    if not compatibility.provides(owner, name):
                        yield _missing_attribute(owner, name, path, code, line)
                owner = getattr(owner, name, None)
            case "CACHE" | "EXTENDED_ARG" | "NOP":
                pass
            case _:
                owner = None


def _is_defined(name: str, function: FunctionType) -> bool:
    """Whether a global name exists, or some function of the module defines it when it runs."""
    known = function.__globals__
    return name in known or hasattr(builtins, name) or name in _stored_globals(known)


def _provide_global(name: str, function: FunctionType, place: tuple[str, int]) -> bool:
    """Define a global name that the design documents use without importing it."""
    shelf = compatibility.shelf()
    return shelf is not None and shelf.provide_global(name, function.__globals__, place)


def _line(instruction: dis.Instruction) -> int | None:
    positions = instruction.positions
    return positions.lineno if positions else None


def _undefined_error(name: str, code: CodeType, function: FunctionType, line: int) -> EdlError:
    near = [*code.co_varnames, *code.co_cellvars, *code.co_freevars, *function.__globals__]
    nearest = difflib.get_close_matches(name, near, n=1, cutoff=0.7)
    if name in _IMPORTS:
        remedy = f"Add `{_IMPORTS[name]}` to the file."
    elif nearest:
        remedy = f"Did you mean {nearest[0]}? Otherwise define or import {name}."
    else:
        remedy = f"Define or import {name}."
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"{code.co_name} uses the name {name}, which is not defined",
        where=str(UserFrame(code.co_filename, line, code.co_name)),
        remedy=remedy,
    )


def _missing_attribute(
    owner: ModuleType, name: str, path: str, code: CodeType, line: int
) -> EdlError:
    nearest = difflib.get_close_matches(name, dir(owner), n=1, cutoff=0.7)
    replacement = replacement_of(owner.__name__, name)
    if owner.__name__ == "keras.backend" and hasattr(sys.modules.get("keras.ops"), name):
        replacement = f"Use keras.ops.{name}: Keras 3 has the functions of the backend there."
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"{code.co_name} uses {path}, which does not exist in {owner.__name__}{_version(owner)}",
        where=str(UserFrame(code.co_filename, line, code.co_name)),
        remedy=replacement
        if replacement
        else f"Did you mean {nearest[0]}?"
        if nearest
        else f"Use what replaced it; tf.compat.v1 may still have {name}."
        if owner.__name__.startswith("tensorflow")
        else f"Use what replaced {name}.",
    )


def _version(module: ModuleType) -> str:
    version = getattr(module, "__version__", None)
    return f" {version}" if isinstance(version, str) else ""
