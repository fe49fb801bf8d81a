"""An image's build on a terminal, or as lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from edl.core.image_build import BuildStatus
from edl.core.quantities import duration
from edl.render import terminal

EVERY_S = 5.0
_CONTEXT = 20


class PlainBuild:
    """A line at every change, and every few seconds; or every line of the build.

    Args:
        every_line: show the log.
        every_s: longest time without a line.
        write: takes a line.
    """

    def __init__(
        self,
        every_line: bool = False,
        every_s: float = EVERY_S,
        write: Callable[[str], None] = terminal.message,
    ) -> None:
        self._every_line = every_line
        self._every_s = every_s
        self._write = write
        self._words = ""
        self._last = ""
        self._since = time.monotonic()
        self._next = self._since + every_s

    def update(self, status: BuildStatus) -> None:
        if status.words == self._words:
            return
        self._words, self._last = status.words, ""
        if not status.is_final:
            self._print(status.words)

    def line(self, text: str) -> None:
        self._last = text
        if self._every_line:
            self._write(f"  | {text}")
        self.tick()

    def say(self, text: str) -> None:
        self._print(text)

    def tick(self) -> None:
        if self._words and time.monotonic() >= self._next:
            last = f": {self._last}" if self._last and not self._every_line else ""
            spent = duration(time.monotonic() - self._since)
            self._print(f"{self._words}, {spent} so far{last}")

    def close(self) -> None:
        """Do nothing: the terminal is as it was."""
        self._words = ""

    def _print(self, text: str) -> None:
        self._next = time.monotonic() + self._every_s
        self._write(f"image: {text}")


class LiveBuild:
    """One line that redraws itself: phase, time, the newest line of the log."""

    def __init__(self, every_line: bool = False) -> None:
        from rich.status import Status

        self._console = terminal.console(sys.stderr)
        self._status = Status("", console=self._console)
        self._every_line = every_line
        self._since = time.monotonic()
        self._words = ""
        self._last = ""
        self._shown = False

    def update(self, status: BuildStatus) -> None:
        self._words = status.words
        if status.is_final:
            self.close()
        else:
            self.tick()

    def line(self, text: str) -> None:
        self._last = text
        if self._every_line:
            self._console.print(terminal.style_text((text, "dim")))
        self.tick()

    def say(self, text: str) -> None:
        self._words, self._last = text, ""
        self.tick()

    def tick(self) -> None:
        if not self._words:
            return
        spent = duration(time.monotonic() - self._since)
        words = f"image  {self._words}, {spent}  "
        room = self._console.width - len(words) - 4
        last = self._last[:room] if room > _CONTEXT and not self._every_line else ""
        self._status.update(terminal.style_text(words, (last, "dim")))
        if not self._shown:
            self._status.start()
            self._shown = True

    def close(self) -> None:
        self._words = ""
        if self._shown:
            self._status.stop()
            self._shown = False


class SilentBuild:
    """A display that shows nothing; for ``-q`` and for programs."""

    def update(self, status: BuildStatus) -> None:
        """Show nothing."""

    def line(self, text: str) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def tick(self) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing: the terminal is as it was."""
