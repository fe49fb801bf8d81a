"""The page of a study: parallel coordinates and the table of trials, in one file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import Hyperparameter, Value, ValueChoice, ValueRange, show_value
from edl_tune.core.study import Study
from edl_tune.core.trials import Trial, TrialState
from edl_tune.trial_table import cells_of, header_of

_WIDTH, _HEIGHT, _TOP, _SIDE = 140, 320, 40, 70
"""Pixels: between two axes, of an axis, above it, and beside the outer ones."""
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the parallel coordinates.

    Attributes:
        ends: the least and the greatest number; None for an axis of values without order.
        values: those of such an axis, from the top.
    """

    name: str
    ends: tuple[float, float] | None = None
    is_log: bool = False
    values: tuple[str, ...] = ()

    def place(self, value: Value) -> float | None:
        """Return where a value is: from 0, the lower end, to 1; None if it is not on the axis."""
        if self.ends is None:
            text = show_value(value)
            if text not in self.values:
                return None
            return 1 - (self.values.index(text) + 0.5) / len(self.values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        low, high = self.ends
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return 0.5 if high <= low else (value - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places on the axis with what to write there."""
        if self.ends is None:
            return [(self.place(value) or 0.0, value) for value in self.values]
        low, high = self.ends
        parts = [number / (_TICKS - 1) for number in range(_TICKS)]
        if high <= low:
            return [(0.5, show_value(low))]
        if self.is_log:
            return [(part, show_value(low * (high / low) ** part)) for part in parts]
        numbers = [low + (high - low) * part for part in parts]
        if isinstance(low, int) and isinstance(high, int):
            whole = sorted({round(number) for number in numbers})
            return [((number - low) / (high - low), str(number)) for number in whole]
        return list(zip(parts, map(show_value, numbers), strict=True))


def page_of(plan: StudyPlan, study: Study) -> str:
    """Return the page of a study as it is now, as HTML that needs no other file."""
    template = files("edl_tune").joinpath("static/report.html").read_text(encoding="utf-8")
    best = study.best
    parts = {
        "title": escape(plan.name),
        "about": escape(_describe(plan, study)),
        "chart": _chart(plan, study),
        "header": "".join(f"<th>{escape(name)}</th>" for name in header_of(plan)),
        "rows": "".join(_row(plan, trial, best) for trial in study.trials),
    }
    for name, content in parts.items():
        template = template.replace(f"{{{{{name}}}}}", content)
    return template


def _describe(plan: StudyPlan, study: Study) -> str:
    states = [trial.state for trial in study.trials]
    counts = ", ".join(
        f"{states.count(state)} {state.value}" for state in TrialState if state in states
    )
    direction = "the greatest" if plan.objective.is_maximized else "the least"
    return f"{len(states)} of {plan.trials} trials ({counts or 'none yet'});" + (
        f" the best has {direction} {plan.objective.name}."
    )


def _row(plan: StudyPlan, trial: Trial, best: Trial | None) -> str:
    is_best = best is not None and best.number == trial.number
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in cells_of(plan, trial, is_best=is_best))
    return f'<tr data-trial="{trial.number}">{cells}</tr>\n'


def axes_of(plan: StudyPlan, trials: Sequence[Trial]) -> list[Axis]:
    """Return an axis for each hyperparameter, and one for the objective."""
    found = [value for trial in trials if (value := trial.result.objective) is not None]
    ends = (min(found), max(found)) if found else (0.0, 1.0)
    return [*map(_axis, plan.space), Axis(plan.objective.name, ends)]


def _axis(each: Hyperparameter) -> Axis:
    match each.domain:
        case ValueRange(low, high, is_log=is_log):
            return Axis(each.name, (low, high), is_log)
        case ValueChoice(values):
            return Axis(each.name, values=tuple(map(show_value, values)))


def _chart(plan: StudyPlan, study: Study) -> str:
    shown = [trial for trial in study.trials if trial.result.objective is not None]
    axes = axes_of(plan, shown)
    width = 2 * _SIDE + _WIDTH * (len(axes) - 1)
    best = study.best
    # The best line is drawn last, above the others.
    order = sorted(shown, key=lambda trial: best is not None and trial.number == best.number)
    goodness = _goodness(plan, shown)
    lines = [_line(axes, plan, trial, goodness[trial.number], best) for trial in order]
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT + 2 * _TOP}" width="{width}" role="img"'
        ' aria-label="Parallel coordinates of the trials">'
        + "".join(lines)
        + "".join(_draw_axis(axis, number) for number, axis in enumerate(axes))
        + "</svg>"
    )


def _goodness(plan: StudyPlan, trials: Sequence[Trial]) -> Mapping[int, float]:
    """Return the rank of each trial: 0 for the worst, 1 for the best."""
    ordered = sorted(
        trials,
        key=lambda trial: trial.result.objective or 0.0,
        reverse=not plan.objective.is_maximized,
    )
    return {trial.number: rank / max(len(ordered) - 1, 1) for rank, trial in enumerate(ordered)}


def _line(
    axes: Sequence[Axis], plan: StudyPlan, trial: Trial, goodness: float, best: Trial | None
) -> str:
    values = {**trial.values, plan.objective.name: trial.result.objective}
    points = []
    for number, axis in enumerate(axes):
        place = axis.place(values[axis.name]) if axis.name in values else None
        if place is not None:  # a value that is not searched in this trial has no point
            points.append(f"{_SIDE + number * _WIDTH},{_height(place):.1f}")
    told = "\n".join(f"{name}: {show_value(value)}" for name, value in values.items())
    is_best = best is not None and best.number == trial.number
    kinds = f"line {trial.state.value}{' best' if is_best else ''}"
    return (
        f'<polyline class="{kinds}" data-trial="{trial.number}" style="--good:{goodness:.3f}"'
        f' points="{" ".join(points)}"><title>trial {trial.number}, {trial.state.value}\n'
        f"{escape(told)}</title></polyline>"
    )


def _draw_axis(axis: Axis, number: int) -> str:
    x = _SIDE + number * _WIDTH
    ticks = "".join(
        f'<text class="tick" x="{x - 6}" y="{_height(place) + 4:.1f}">{escape(text)}</text>'
        for place, text in axis.ticks()
    )
    return (
        f'<line class="axis" x1="{x}" y1="{_height(1)}" x2="{x}" y2="{_height(0)}"/>{ticks}'
        f'<text class="name" x="{x}" y="{_TOP - 16}">{escape(axis.name)}</text>'
    )


def _height(place: float) -> float:
    return _TOP + _HEIGHT * (1 - place)
