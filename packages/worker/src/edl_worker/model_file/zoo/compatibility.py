"""Support for removed names in model files, with one warning for each.

The names are a shelf of their own, which plugs in by an entry point of the group
``edl.compatibility``. Without one a model file sees TensorFlow and Keras as they are. The names
exist only in a block ``with provide_removed_names():``, which surrounds all code of a model file.
The rest of the process sees TensorFlow as it is. A warning names the line and what to write
instead.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType
from typing import Any, Protocol

from edl_worker.model_file.zoo.module_loaders import find_running_line

GROUP = "edl.compatibility"


class CompatibilityWarning(UserWarning):
    """A model file uses a name that TensorFlow or Keras has removed."""


class CompatibilityShelf(Protocol):
    """The support that a distribution adds for model files of old versions and other products."""

    def serve_modules(self) -> None:
        """Let imports find old modules in this process from now on."""

    def put_names(self) -> None:
        """Put the removed names in place."""

    def take_names(self) -> None:
        """Undo ``put_names``."""

    def old_module(self, name: str) -> ModuleType | None:
        """Return what a model file gets for a module that exists and does not work any more."""

    def provide_global(self, name: str, names: dict[str, Any], place: tuple[str, int]) -> bool:
        """Define a global name that model files use without importing it, if it is such a one."""

    def is_of_keras_2(self, kind: type) -> bool:
        """Return whether a class comes from Keras 2, or inherits from a class of it."""

    def to_keras_3(self, value: Any) -> Any:
        """Return a model, optimizer or metric of Keras 2 as one of Keras 3; others as they are.

        The result for a model has a layer with the model itself as its attribute ``wrapped``.

        Raises:
            ValueError: a model has no inputs yet, or no weights.
        """

    def is_old_callback(self, callback: Any) -> bool:
        """Return whether a callback is of another product, and has no hook that edl calls."""

    def version_schedule(self, schedule: Callable[[int], Any]) -> Any:
        """Return a learning rate by parameter version as an optimizer takes it.

        Raises:
            Exception: what the schedule raises, or that it cannot be used.
        """


_lock = threading.RLock()
_depth = 0
_warned: set[tuple[str, str, int]] = set()


@functools.cache
def shelf() -> CompatibilityShelf | None:
    """Return the shelf that is installed; None if there is none."""
    for entry in metadata.entry_points(group=GROUP):
        made: CompatibilityShelf = entry.load()()
        return made
    return None


@contextmanager
def provide_removed_names() -> Iterator[None]:
    """Run the block with the removed names in place; reentrant, and shared by all threads."""
    global _depth
    found = shelf()
    _keep_frames_of_layers()
    with _lock:
        _depth += 1
        if _depth == 1 and found is not None:
            found.put_names()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and found is not None:
                found.take_names()


def _keep_frames_of_layers() -> None:
    """Let errors of Keras keep the frames that say what a layer got, in this thread."""
    keras = sys.modules.get("keras")
    if keras is not None:
        keras.config.disable_traceback_filtering()


def are_names_provided() -> bool:
    """Return whether code of a model file is running."""
    return _depth > 0


def provides(owner: Any, name: str) -> bool:
    """Return whether ``owner.name`` exists while the names are in place."""
    with provide_removed_names():
        return hasattr(owner, name)


def to_keras_3(value: Any) -> Any:
    """Return what ``CompatibilityShelf.to_keras_3`` makes of a value."""
    found = shelf()
    return value if found is None else found.to_keras_3(value)


def is_of_keras_2(kind: type) -> bool:
    """Return the result of ``CompatibilityShelf.is_of_keras_2`` for a class."""
    found = shelf()
    return found is not None and found.is_of_keras_2(kind)


def warn_once(text: str, place: tuple[str, int] | None = None) -> None:
    """Warn once per place.

    Args:
        place: file and line; by default those of the model file's code that is running.
    """
    filename, line = place or find_running_line() or ("the model file", 0)
    if (text, filename, line) not in _warned:
        _warned.add((text, filename, line))
        warnings.warn_explicit(text, CompatibilityWarning, filename, line)


def forget_warnings() -> None:
    """Forget which warnings were shown, before a model file is loaded again."""
    _warned.clear()
