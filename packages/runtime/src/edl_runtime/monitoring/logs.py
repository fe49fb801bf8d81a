"""Configures the log of a process: its level, its format, and the facts in each line.

Text is for people. JSON, an object a line, is for what collects the logs of containers;
``edl_runtime.monitoring.log_lines`` defines and reads both.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from edl_runtime.monitoring.log_lines import (
    FORMAT_VARIABLE,
    JSON,
    LEVELS,
    LogEntry,
    as_json,
    as_text,
)

LEVEL_VARIABLE = "EDL_LOG_LEVEL"
_FORMS = {"": as_text, "text": as_text, JSON: as_json}
_ABOUT = ("worker", "server", "task")
"""What a single line may say by ``extra`` of what it is about."""

_process: dict[str, str | int] = {}
_task: ContextVar[str] = ContextVar("task", default="")


class _Formatter(logging.Formatter):
    def __init__(self, write: Callable[[LogEntry], str]) -> None:
        super().__init__()
        self._write = write

    def format(self, record: logging.LogRecord) -> str:
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        level = record.levelname if record.levelname in LEVELS else _level(record.levelno)
        message, exception = record.getMessage(), "\n".join(parts)
        return self._write(
            LogEntry(record.created, level, record.name, message, _facts(record), exception)
        )


def set_up(default: int = logging.INFO) -> None:
    """Write log lines to stderr, in the form that ``EDL_LOG_FORMAT`` names, text by default.

    Args:
        default: the least level that is written if ``EDL_LOG_LEVEL`` is not set, or names none.
    """
    named = os.environ.get(LEVEL_VARIABLE, "").upper()
    handler = logging.StreamHandler(sys.stderr)
    form = os.environ.get(FORMAT_VARIABLE, "").lower()
    handler.setFormatter(_Formatter(_FORMS.get(form, as_text)))
    level = logging.getLevelNamesMapping().get(named, default)
    logging.basicConfig(level=level, handlers=[handler])
    if form not in _FORMS:
        logging.getLogger(__name__).warning(
            "%s is %r, which is not a log format, so this log is text; set it to text or json",
            FORMAT_VARIABLE,
            form,
        )


def identify(role: str = "", number: int | None = None, job: str = "") -> None:
    """Name this process in each line from now on.

    Later calls add to what earlier ones said.

    Args:
        role: such as ``master`` or ``worker``.
        number: of this process among those of its role.
        job: name of the job.
    """
    facts: dict[str, str | int] = {**_process}
    if job:
        facts["job"] = job
    if role:
        facts["role"] = role
    if number is not None:
        facts[role] = number
    order = ("job", "role")
    _process.clear()
    _process.update({name: facts.pop(name) for name in order if name in facts} | facts)


@contextlib.contextmanager
def task_context(task: str) -> Iterator[None]:
    """Name a task in the lines of this thread, within a context."""
    before = _task.set(task)
    try:
        yield
    finally:
        _task.reset(before)


def _facts(record: logging.LogRecord) -> dict[str, str | int]:
    facts: dict[str, str | int] = {**_process}
    if task := _task.get():
        facts["task"] = task
    about = {name: getattr(record, name, None) for name in _ABOUT}
    return facts | {name: value for name, value in about.items() if value not in (None, "")}


def _level(number: int) -> str:
    """Return the highest level that a number without a name reaches."""
    return LEVELS[min(max(number // 10, 1), len(LEVELS)) - 1]
