"""Progress where nothing can be redrawn: one line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.render import terminal
from edl.render.job_text import event_line, progress_line
from edl.render.line_rate import EventRateLimit, LineRateLimit

EVERY_S = 5.0

_REPEAT_FACTOR = 6
"""A line that says nothing new is shown this many times less often, as a sign of life."""


class PlainDisplay:
    """A display that writes lines: at every change of state, for notable events, and now and then.

    Args:
        every_s: time between two lines; it grows with the time that the job takes.
        write: takes a line.
    """

    def __init__(
        self, every_s: float = EVERY_S, write: Callable[[str], None] = terminal.message
    ) -> None:
        self._write = write
        self._line_limit = LineRateLimit(every_s)
        self._events = EventRateLimit(every_s)
        self._state: JobState | None = None
        self._last = ""
        self._again = 0.0

    def update(self, status: JobStatus) -> None:
        now = time.monotonic()
        changed = status.state is not self._state
        if status.state.is_over or not (self._line_limit.is_due() or changed):
            return
        self._state = status.state
        line = progress_line(status)
        if line == self._last and now < self._again:
            return
        self._last, self._again = line, now + _REPEAT_FACTOR * self._line_limit.interval(now)
        self._write(f"{status.job}: {line}")

    def show_event(self, event: JobEvent) -> None:
        if event.is_notable and self._events.is_due(event.kind):
            self._write(event_line(event))

    def say(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        """Do nothing: the terminal is as it was."""


class SilentDisplay:
    """A display that shows no progress; for ``-q`` and for programs.

    Args:
        say: shows messages.
    """

    def __init__(self, say: Callable[[str], object] = lambda text: None) -> None:
        self._say = say

    def update(self, status: JobStatus) -> None:
        """Show nothing."""

    def show_event(self, event: JobEvent) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        self._say(text)

    def close(self) -> None:
        """Do nothing: the terminal is as it was."""
