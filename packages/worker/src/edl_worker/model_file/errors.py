"""Errors of model files: the place in user code, and a traceback without edl's own frames."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file import keras_2
from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.frames import (
    UserFrame,
    is_raised_by_library,
    source_line,
    user_frames,
    user_traceback,
)
from edl_worker.model_file.framework_types import dtype_name, is_tensorflow_error, leaves
from edl_worker.model_file.known_errors import explain
from edl_worker.model_file.raising_layer import RaisingLayer, find_layer, place_in_list
from edl_worker.model_file.stated_rules import describe_line, explain_rule

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ABOUT_ARGUMENTS = (ValueError, TypeError, IndexError, AssertionError)
"""What layers raise because of what they got."""

_OF_ONE_LINE = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)
"""What Python raises because of the values that a line has."""

_MAX_LINE = 160
_FIX = "Fix the function."
"""What callers say to do if they know no more."""

_MORE_MEMORY = (
    "Use a smaller --minibatch-size, fewer workers on this machine, or give each worker more "
    "memory (on Kubernetes: --worker-resources memory=8Gi)."
)

NUMBERS_AS_LABELS = (
    "Make the input function yield numbers as labels: tf.strings.to_number(label) if they are "
    "written as text, or the number of each class, looked up in a tf.lookup.StaticHashTable."
)


class ContractErrors(EdlError):
    """All errors that were found in a model file.

    It is itself an ``EdlError``, so that it can be reported where one error is expected: code,
    place and remedy are those of the first error, and the detail lists all of them.

    Attributes:
        errors: at least one, in the order in which a person should fix them.
    """

    def __init__(self, errors: Sequence[EdlError]) -> None:
        first = errors[0]
        what = first.what
        if len(errors) > 1:
            what = f"{what} (and {len(errors) - 1} more)"
        detail = "\n".join(str(error) for error in errors) if len(errors) > 1 else first.detail
        super().__init__(first.code, what, where=first.where, remedy=first.remedy, detail=detail)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class ProcessExit(Exception):
    """A definition raised ``SystemExit``, its cause, which may not end the worker.

    An error of the model file like any other: those who catch ``Exception`` report it.
    """


@contextlib.contextmanager
def convert_exits() -> Iterator[None]:
    """Convert exits of user code to ``ProcessExit`` while the context lasts."""
    try:
        yield
    except SystemExit as exit:
        raise ProcessExit from exit


class DefinitionRaised(Exception):
    """A definition of the model file raised when it was called.

    Attributes:
        error: the error to report.
    """

    def __init__(self, error: EdlError) -> None:
        super().__init__(str(error))
        self.error = error


class DefinitionUnavailable(Exception):
    """A definition cannot be used because of an error that is already reported."""


class ErrorCollector:
    """A collector of errors, so that users read all of them at once."""

    def __init__(self) -> None:
        self.errors: list[EdlError] = []

    def attempt(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result | None:
        """Call a function and add the error that it raises.

        Returns:
            The function's result; None if it raised.
        """
        try:
            return function(*args, **kwargs)
        except EdlError as error:
            self.add(error)
        except DefinitionRaised as raised:
            # The check of undefined names may have reported the same line.
            if not any(raised.error.where == other.where for other in self.errors):
                self.add(raised.error)
        except DefinitionUnavailable:
            pass
        return None

    def add(self, error: EdlError) -> None:
        known = [(other.code, other.what, other.where) for other in self.errors]
        if (error.code, error.what, error.where) not in known:
            self.errors.append(error)

    def extend(self, errors: Iterable[EdlError]) -> None:
        for error in errors:
            self.add(error)

    def prepend(self, errors: Iterable[EdlError]) -> None:
        """Add errors that a person should read first."""
        self.errors = [*errors, *self.errors]

    def raise_if_any(self) -> None:
        """Raise ``ContractErrors`` with the collected errors, if there are any."""
        if self.errors:
            raise ContractErrors(self.errors)


def type_with_article(value: Any) -> str:
    """Return the type of a value for a sentence: ``an int``, ``a Tensor``, ``None``."""
    if value is None:
        return "None"
    name = re.sub("^(Symbolic|Eager|Keras)Tensor$", "Tensor", type(value).__name__)
    package = keras_2.package_of(type(value))
    origin = f" of {package} (Keras 2)" if package else ""
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}{origin}"


def place_of(value: Any, name: str = "") -> str:
    """Return ``file:line, name`` of a function or class; only the name if the place is unknown."""
    target = inspect.unwrap(value) if callable(value) else value
    target = getattr(target, "func", target)  # functools.partial
    target = getattr(target, "__func__", target)
    if not (inspect.isfunction(target) or inspect.isclass(target)):
        target = type(target)
    name = name or getattr(target, "__name__", "")
    try:
        filename = inspect.getsourcefile(target) or inspect.getfile(target)
        line = (
            target.__code__.co_firstlineno
            if inspect.isfunction(target)
            else inspect.getsourcelines(target)[1]
        )
    except (TypeError, OSError):
        return name
    return str(UserFrame(filename, line, name))


def user_code_error(
    error: BaseException,
    root: Path,
    *,
    code: ErrorCode.ValueType,
    action: str,
    place: str,
    remedy: str,
) -> EdlError:
    """Return the error to report for an exception that user code raised.

    A lack of memory is an error of the machine (SYSTEM), wherever it is raised.

    Args:
        error: the exception; an ``EdlError`` is returned as it is.
        root: folder of the model zoo; the innermost frame below it becomes the place.
        action: subject and verb, such as "loss(labels, predictions) raised".
        place: the place to report if no frame is below ``root``.
        remedy: what the user should do.
    """
    if isinstance(error, EdlError):
        return error
    if isinstance(error, ProcessExit) and error.__cause__ is not None:
        error = error.__cause__
    frames = user_frames(error, root)
    message = message_of(error)
    name = type(error).__name__
    if is_out_of_memory(error):
        what = f"{action} an out-of-memory error: {message}" if message else action
        where, detail = str(frames[-1]) if frames else place, user_traceback(error, frames)
        return EdlError(ErrorCode.SYSTEM, what, where=where, remedy=_MORE_MEMORY, detail=detail)
    raising = find_layer(error) if is_raised_by_library(error) else None
    line = _find_source(error, frames)
    known = explain(error, message, line)
    if known is not None:
        message = known.message or re.split(r"(?<!\bvs)\. ", message)[0]
    what = f"{action} {name}: {message}" if message else f"{action} {name}"
    if known is not None and known.meaning:
        function = frames[-1].function if frames else "<module>"
        owner = "the model" if function == "<module>" else function
        what = f"{_find_owner(error, root) or owner} {known.meaning}"
    elif raising is not None and raising.got and _is_about_arguments(error):
        what = f"{what.rstrip('.')}; {raising}"
    found = raising.remedy(message) if raising is not None else ""
    if not found and known is not None:
        found = known.remedy
    elif not found:
        found = _find_remedy(error, frames, line, raising)
        if not found and remedy.startswith(_FIX):
            found = _show_line(frames, place, message)
    return EdlError(
        code,
        what,
        where=str(frames[-1]) if frames else place,
        remedy=found or remedy,
        detail=user_traceback(error, frames),
    )


def _find_source(error: BaseException, frames: list[UserFrame]) -> str:
    """Return the line that raised; the last frame gets the place of the layer in a list."""
    if not frames:
        return ""
    at = place_in_list(error, frames[-1].filename, frames[-1].line)
    frames[-1] = dataclasses.replace(frames[-1], line=at)
    return source_line(frames[-1].filename, frames[-1].line)


def _find_remedy(
    error: BaseException, frames: Sequence[UserFrame], line: str, raising: RaisingLayer | None
) -> str:
    """Return what to do about an error that no table has; empty if nothing shows that."""
    if frames and is_raised_by_library(error) and (found := explain_rule(error, line)):
        return found
    if frames and line and not is_raised_by_library(error) and isinstance(error, _OF_ONE_LINE):
        return describe_line(error, frames[-1].filename, line)
    has_hint = raising is not None and raising.got and _is_about_arguments(error)
    return raising.suggest_change() if raising is not None and has_hint else ""


def _show_line(frames: Sequence[UserFrame], place: str, message: str) -> str:
    """Return that a line is to be corrected: the one that raised, or what the place is."""
    at = re.match(r"(.+\.py):(\d+)", str(frames[-1]) if frames else place)
    line = source_line(at.group(1), int(at.group(2))) if at else ""
    is_whole = 0 < len(line) <= _MAX_LINE and not line.startswith(("def ", "class ", "@"))
    if not is_whole:
        return ""
    shown = f": {message.rstrip('.')}." if 0 < len(message) <= _MAX_LINE else "."
    return f"Correct `{line}`{shown}"


def _is_about_arguments(error: BaseException) -> bool:
    return isinstance(error, _ABOUT_ARGUMENTS) or is_tensorflow_error(error, "InvalidArgumentError")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an operation of Python, numpy or TensorFlow found no memory."""
    return isinstance(error, MemoryError) or (
        is_tensorflow_error(error, "ResourceExhaustedError")
        and "No space left" not in str(error)  # of a disk
    )


def _find_owner(error: BaseException, root: Path) -> str:
    """Return the class whose method raised an error, of those in files below ``root``."""
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(str(root) + os.sep) and "self" in frame.f_locals:
            found = type(frame.f_locals["self"]).__name__
    return found


def trial_error(
    error: Exception, root: Path, *, action: str, place: str, labels: Any = None
) -> EdlError:
    """Return the error to report when the model, the loss or a metric raised on a minibatch.

    The other arguments are those of ``user_code_error``.

    Args:
        labels: of the minibatch, if the function got them.
    """
    is_known = explain(error, message_of(error)) is not None
    about_shapes = not is_known and (
        isinstance(error, ValueError) or is_tensorflow_error(error, "InvalidArgumentError")
    )
    found = user_code_error(
        error,
        root,
        code=ErrorCode.SHAPE_MISMATCH if about_shapes else ErrorCode.MODEL_CONTRACT,
        action=action,
        place=place,
        remedy="Compare the shapes that the input function yields with those that the model, the "
        "loss and the metrics take."
        if about_shapes
        else _FIX,
    )
    if found is not error and is_about_text(error, labels):
        found.code = ErrorCode.SHAPE_MISMATCH
        found.what += "; the labels are strings"
        found.remedy = NUMBERS_AS_LABELS
    elif found is not error and found.detail and not about_shapes and not is_known:
        found.remedy += " The detail has a traceback."
    return found


def is_about_text(error: BaseException, labels: Any) -> bool:
    """Whether an error may come from labels that are strings."""
    return "string" in map(dtype_name, leaves(labels)) and "string" in str(error)
