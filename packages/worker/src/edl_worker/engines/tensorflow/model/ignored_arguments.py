"""Notes which arguments of a model file Keras ignores, such as the ``decay`` of an optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edl_proto.printable import one_line
from edl_worker.model_file.zoo.module_loaders import find_running_line


@contextmanager
def note_ignored_arguments() -> Iterator[list[str]]:
    """Note while the context lasts what Keras warns that it ignores: place and message."""
    found: list[str] = []

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        text, line = one_line(str(message)), find_running_line()
        if "will be ignored" in text and line is not None:
            found.append(f"{line[0]}:{line[1]}: {text}")
        show_as_before(message, *rest, **more)

    with warnings.catch_warnings():
        show_as_before = warnings.showwarning
        warnings.filterwarnings("always", message=".*will be ignored")
        warnings.showwarning = show
        yield found
