"""The progress of a conversion, as a bar or as lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edl.plugins.commands import terminal
from edl.plugins.texts import count

_REPORT_EVERY_S = 5.0


@contextmanager
def show_progress(total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show progress within a context: a bar on a terminal, a line every few seconds elsewhere.

    Args:
        total: number of records, if it is known.
        quiet: show nothing.
    """
    begin = time.monotonic()

    def rate(done: int) -> int:
        return round(done / max(time.monotonic() - begin, 0.001))

    if quiet:
        yield lambda _: None
    elif terminal.may_animate(sys.stderr):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (
            *("records", BarColumn(), MofNCompleteColumn(), "{task.fields[rate]:,}/s"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=terminal.console(sys.stderr), transient=True) as bar:
            task = bar.add_task("", total=total, rate=0)
            yield lambda done: bar.update(task, completed=done, rate=rate(done))
    else:
        due = begin + _REPORT_EVERY_S

        def report(done: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + _REPORT_EVERY_S
                of = f" of {count(total)}" if total else ""
                terminal.message(f"{count(done)}{of} records, {count(rate(done))}/s")

        yield report
