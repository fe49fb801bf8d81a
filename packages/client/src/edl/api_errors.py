"""The exceptions of the Python API: a class for each kind of failure, and names for all codes.

The command line has exit codes for the same kinds (``edl.core.exit_codes``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec, TypeVar, cast

from edl import codec
from edl.core.exit_codes import present
from edl.core.problem import Problem
from edl.core.python_names import translate
from edl_proto.errors import EdlError
from edl_proto.errors import ErrorCode as Codes

P = ParamSpec("P")
R = TypeVar("R")

ErrorCode = IntEnum("ErrorCode", Codes.items())  # type: ignore[misc]  # no literal
"""The codes of errors: ``error.code.name`` is ``"DATA_NOT_FOUND"``, for example."""


class JobFailedError(EdlError):
    """The job ran and failed."""


class UsageError(EdlError):
    """An argument or a setting is wrong."""


class DataError(EdlError):
    """Data is missing, empty, unreadable or damaged."""


class ModelFileError(EdlError):
    """The model file is missing, broken, or unsuitable for the data."""


class ExistsError(EdlError):
    """The output, the job or the port exists or is in use."""


class NotFoundError(EdlError):
    """There is no such job, or it is over."""


class MachineError(EdlError):
    """The machine lacks disk space, memory or permissions."""


class StoppedError(EdlError):
    """The job was stopped, or timed out."""


_CLASSES: dict[int, type[EdlError]] = {
    1: JobFailedError,
    2: UsageError,
    3: DataError,
    4: ModelFileError,
    5: ExistsError,
    6: NotFoundError,
    7: MachineError,
    8: StoppedError,
}
"""By exit code; failures of other kinds are an ``EdlError``."""


def for_python(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors name arguments of Python, and show no frames of edl."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # IPython leaves such frames out
        try:
            return function(*args, **kwargs)
        except (EdlError, Problem) as error:
            failed: BaseException = _convert(error, kwargs)
        except KeyboardInterrupt as interrupt:
            failed = interrupt.with_traceback(None)
        raise failed  # outside of the except clause, so that there is no context

    return call


def _convert(error: EdlError | Problem, given: dict[str, object]) -> EdlError:
    if isinstance(error, Problem):
        error = codec.error_of(error)
    return as_python_error(error, lambda text: translate(text, given))


def as_python_error(error: EdlError, translated: Callable[[str], str] = str) -> EdlError:
    """Return an error as one of its class.

    Args:
        translated: makes texts for Python of those for the command line.
    """
    kind = _CLASSES.get(present(error.code_name).exit_code, EdlError)
    return kind(
        cast(Codes.ValueType, ErrorCode[error.code_name]),
        translated(error.what),
        where=translated(error.where),
        remedy=translated(error.remedy),
        detail=error.detail,
    )
