"""A job in the output of a notebook's cell: one panel with curves that is replaced again and again.

The last panel stays in the saved notebook. It is HTML with images and without scripts, and text
for whatever shows no HTML, so that it needs no widget and no running kernel.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from edl.core import quantities
from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.core.options import Verb
from edl.render import terminal
from edl.render.charts import (
    TRAINING,
    VALIDATION,
    Chart,
    Line,
    Point,
    find_finite,
    image,
    sparkline,
)
from edl.render.job_text import event_line, progress_line
from edl_proto.printable import visible

Row = Mapping[str, float]
"""Values of an epoch by name, and ``epoch``, from 1."""

_EVERY_S = 1.0
_ELAPSED_DIVISOR = 300
"""A panel comes at most once in this part of the time so far: the server keeps all of them while
the browser is closed, and an hour makes about a thousand."""

_MAX_CHARTS = 6
_IN_PANEL = frozenset(("EvaluationEnded", "CheckpointTaken"))
"""Events that the panel shows better than a line of their own."""

_VALIDATION_LOSS = "validation loss"
"""The name of this curve in a status; all other names but ``loss`` are metrics of validation."""


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows HTML."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def command_name() -> str:
    """Return how a person runs edl from here: ``%edl`` in a notebook, where it is a magic."""
    return "%edl" if in_notebook() else "edl"


class NotebookDisplay:
    """A ``JobDisplay`` in the output of a cell."""

    def __init__(self) -> None:
        self._id = f"edl-{secrets.token_hex(8)}"
        self._began = time.monotonic()
        self._next = 0.0
        self._state: JobState | None = None
        self._shown: dict[str, str] | None = None

    def update(self, status: JobStatus, rows: Sequence[Row] = ()) -> None:
        """Show the newest status.

        Args:
            rows: values of the epochs so far, in addition to the curves of the status.
        """
        now = time.monotonic()
        if status.state is self._state and now < self._next and not status.state.is_over:
            return
        self._state = status.state
        self._next = now + max(_EVERY_S, (now - self._began) / _ELAPSED_DIVISOR)
        content = panel(status, rows)
        if content != self._shown:
            _publish(content, self._id, is_new=self._shown is None)
            self._shown = content

    def show_event(self, event: JobEvent) -> None:
        """Show an event below the panel, unless the panel has it."""
        if event.is_notable and event.kind not in _IN_PANEL:
            self.say(event_line(event))

    def say(self, text: str) -> None:
        """Show a message below the panel, not among the errors."""
        terminal.result(text)

    def close(self) -> None:
        """Do nothing: the last panel stays."""


def _publish(content: dict[str, str], display_id: str, *, is_new: bool) -> None:
    from IPython.display import display, update_display  # a notebook has it

    if is_new:
        display(content, raw=True, display_id=display_id)
    else:
        update_display(content, raw=True, display_id=display_id)


def panel(status: JobStatus, rows: Sequence[Row] = ()) -> dict[str, str]:
    """Return a job as text and as HTML, by MIME type.

    Args:
        rows: values of the epochs so far, in addition to the curves of the status.
    """
    charts = list(find_charts(status, rows))
    line = progress_line(status)
    if status.state.is_over and status.seconds > 0:
        line += f", {quantities.duration(status.seconds)}"
    return {"text/plain": _text(status, line, charts), "text/html": _html(status, line, charts)}


def _text(status: JobStatus, line: str, charts: Sequence[Chart]) -> str:
    curves = [
        (f"{chart.title}, {each.name}", [y for _, y in each.points])
        for chart in charts
        for each in chart.lines
    ]
    width = max((len(name) for name, _ in curves), default=0)
    lines = [f"{status.job}: {line}"]
    lines += [
        f"  {name:<{width}}  {quantities.number(ys[0])} {sparkline(ys)} {quantities.number(ys[-1])}"
        for name, ys in curves
    ]
    return visible("\n".join(lines))


def _html(status: JobStatus, line: str, charts: Sequence[Chart]) -> str:
    bar = ""
    if status.records_total and not status.state.is_over:
        bar = f'<progress max="1" value="{status.fraction:.4f}"></progress> '
    images = "".join(map(image, charts[:_MAX_CHARTS]))
    return (
        f"<div>{bar}<b>{escape(visible(status.job))}</b>: {escape(line)}</div>"
        f"{f'<div>{images}</div>' if images else ''}"
    )


def find_charts(status: JobStatus, rows: Sequence[Row] = ()) -> Iterator[Chart]:
    """Yield the charts of a job: the loss, then its metrics by name.

    Args:
        rows: values of the epochs so far, in addition to the curves of the status.
    """
    in_epochs = bool(status.num_epochs) and not status.is_stream
    # Of a step, about: all epochs have equally many.
    scale = status.fraction * status.num_epochs / max(status.version, 1) if in_epochs else 1
    curves = {
        name: find_finite((step * scale, value) for step, value in points)
        for name, points in status.curves.items()
    }
    training = {"loss": curves.pop("loss", [])} if status.verb is Verb.TRAIN else {}
    if _VALIDATION_LOSS in curves:
        curves["loss"] = curves.pop(_VALIDATION_LOSS)
    if in_epochs:
        _add_rows(training, curves, rows)
    unit = "epochs" if in_epochs else "steps"
    names = {**training, **curves}
    for name in sorted(names, key=lambda name: (name != "loss", name)):
        lines = [
            Line(which, points)
            for which, points in (
                (TRAINING, training.get(name, [])),
                (VALIDATION if training else "data", curves.get(name, [])),
            )
            if len(points) > 1 or (points and status.state.is_over)
        ]
        if lines:
            yield Chart(name, lines, unit)


def _add_rows(
    training: dict[str, list[Point]], validation: dict[str, list[Point]], rows: Sequence[Row]
) -> None:
    """Add the curves of rows, unless the status has these curves, which have more points."""
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if name in ("epoch", "learning_rate"):
            continue
        of_validation = name.startswith("val_")
        curves = validation if of_validation else training
        plain = name.removeprefix("val_")
        if not curves.get(plain):
            points = ((row["epoch"], row[name]) for row in rows if name in row)
            curves[plain] = find_finite(points)
