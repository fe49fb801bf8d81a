"""The places in a model zoo at which an exception was raised."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.framework_types import is_tensorflow_error

_GRAPH_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')

_PYTHON = os.path.dirname(inspect.__file__) + os.sep


@dataclass(frozen=True, slots=True)
class UserFrame:
    """A place in a file of the model zoo."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        scope = "" if self.function == "<module>" else f", {self.function}"
        return f"{self.filename}:{self.line}{scope}"


def user_frames(error: BaseException, root: Path) -> list[UserFrame]:
    """Return the frames of ``error`` in files below ``root``, outermost first."""
    frames = _autograph_frames(error)
    if not _select_inside(frames, root):
        frames = [
            UserFrame(frame.filename, frame.lineno or 0, frame.name)
            for frame in traceback.extract_tb(error.__traceback__)
        ]
    if not _select_inside(frames, root):
        # An error of a running graph has the places where its nodes were created in its text.
        frames = [
            UserFrame(filename, int(line), function)
            for filename, line, function in _GRAPH_FRAME.findall(str(error))
        ]
    return _select_inside(frames, root)


def _autograph_frames(error: BaseException) -> list[UserFrame]:
    """Return the frames of the original code, outermost first.

    AutoGraph runs a translated copy of a function and attaches the original places to the
    error. The list is empty for errors that did not come through AutoGraph.
    """
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is None:
        return []
    return [
        UserFrame(frame.filename, frame.lineno, frame.function_name)
        for frame in reversed(metadata.translated_stack)
    ]


def _select_inside(frames: list[UserFrame], root: Path) -> list[UserFrame]:
    prefix = str(root) + os.sep
    return [frame for frame in frames if frame.filename.startswith(prefix)]


def user_traceback(error: BaseException, frames: Sequence[UserFrame]) -> str:
    """Return a traceback that has only frames of user code."""
    if not frames and is_raised_by_library(error):
        return ""  # the frames are the library's, and its message is in the sentence
    if not frames:
        return "".join(traceback.format_exception(error))[-4000:]
    lines = ["Traceback (frames of the model file only):"]
    for frame in frames:
        lines.append(f'  File "{frame.filename}", line {frame.line}, in {frame.function}')
        source = source_line(frame.filename, frame.line)
        if source:
            lines.append(f"    {source}")
    lines.append(f"{type(error).__name__}: {message_of(error)}")
    return "\n".join(lines)


def is_raised_by_library(error: BaseException) -> bool:
    """Whether TensorFlow, Keras or another installed package raised an error."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    # A library may call Python's own modules.
    while files and files[-1].startswith(_PYTHON) and "site-packages" not in files[-1]:
        files.pop()
    return is_tensorflow_error(error) or bool(files and "site-packages" in files[-1])


def source_line(filename: str, line: int) -> str:
    """Return a line of a file without its indentation; empty if there is none."""
    try:
        lines = Path(filename).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
