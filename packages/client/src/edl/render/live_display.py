"""Progress on a terminal: a few lines at the bottom that redraw themselves."""

from __future__ import annotations

import math
import sys

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from edl.core import quantities
from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.render import job_text, terminal
from edl.render.line_rate import EventRateLimit

_NARROW = 60
_MAX_WORKERS = 8  # rows of workers; more would scroll away what matters


class LiveDisplay:
    """A progress bar with metrics; notable events scroll by above it."""

    def __init__(self) -> None:
        self._console = terminal.console(sys.stderr)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)
        self._spinner = Spinner("dots", style="cyan")
        self._shown = False
        self._events = EventRateLimit()

    def update(self, status: JobStatus) -> None:
        if status.state.is_over:
            self.close()
            return
        if not self._shown:
            self._live.start()
            self._shown = True
        self._live.update(self._picture(status))

    def show_event(self, event: JobEvent) -> None:
        if event.is_notable and self._events.is_due(event.kind):
            style = {"warning": "yellow", "error": "red"}.get(event.severity, "dim")
            self._console.print(terminal.style_text((job_text.event_line(event), style)))

    def say(self, text: str) -> None:
        self._console.print(terminal.style_text(text))

    def close(self) -> None:
        if self._shown:
            self._live.stop()
            self._shown = False

    def _picture(self, status: JobStatus) -> RenderableType:
        lines: list[RenderableType] = [self._headline(status)]
        if status.records_total:
            lines.append(self._bar(status))
        metrics = job_text.describe_metrics(status)
        if metrics:
            lines.append(terminal.style_text(("  " + "   ".join(metrics), "green")))
        if status.workers and self._console.width >= _NARROW:
            lines.append(_workers(status))
        return Group(*lines)

    def _headline(self, status: JobStatus) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        words = f"  {job_text.phase(status)}, {job_text.workers_phrase(status)}"
        if status.rounds:
            words += f", {status.rounds}"
        name = (status.job, "bold")
        if status.state is JobState.STARTING:
            since = f"  {quantities.duration(status.seconds)}"
            row.add_row(self._spinner, terminal.style_text(name, words, (since, "dim")))
        else:
            row.add_row(terminal.style_text(name, words))
        return row

    def _bar(self, status: JobStatus) -> RenderableType:
        width = max(10, min(40, self._console.width - 62))
        row = Table.grid(padding=(0, 1))
        row.add_row(
            ProgressBar(total=1.0, completed=status.fraction, width=width),
            terminal.style_text(f"{status.fraction:4.0%}"),
            terminal.style_text(
                f"{quantities.count(status.records_done)}"
                f"/{quantities.count(status.records_total)} records"
            ),
            terminal.style_text((f"{quantities.rate(status.records_per_s)}/s", "cyan")),
            terminal.style_text(
                f"ETA {quantities.duration(status.eta_s)}" if status.eta_s >= 0 else ""
            ),
        )
        return row


def _workers(status: JobStatus) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for worker in status.workers[:_MAX_WORKERS]:
        style = {"lost": "red", "gone": "dim", "leaving": "yellow"}.get(worker.state, "dim")
        rate = worker.records_per_s
        table.add_row(
            terminal.style_text((f"  worker {worker.id}", "dim")),
            terminal.style_text((worker.state, style)),
            terminal.style_text((worker.task, "dim")),
            terminal.style_text(
                (f"{quantities.rate(rate)}/s" if math.isfinite(rate) and rate else "", "dim")
            ),
        )
    hidden = len(status.workers) - _MAX_WORKERS
    if hidden > 0:
        table.add_row(terminal.style_text((f"  and {hidden} more", "dim")))
    return table
