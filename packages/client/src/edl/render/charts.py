"""Small charts of a job's curves: as images for web pages, and in characters."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from edl.core.quantities import number
from edl_proto.printable import one_line

Point = tuple[float, float]

TRAINING, VALIDATION = "training", "validation"

_WIDTH, _HEIGHT = 340, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 26, 24
_BLOCKS = "▁▂▃▄▅▆▇█"
_BLOCKS_OF_LINE = 24
# They can be read on white and on black: an image does not learn the colors of the page around it.
_GRAY, _BLUE, _ORANGE = "#808080", "#3b82f6", "#e8833a"


@dataclass(frozen=True, slots=True)
class Line:
    """A curve of a chart.

    Attributes:
        name: says in the chart's title which one it is; validation has a color of its own.
        points: with finite values, in the order of x.
    """

    name: str
    points: Sequence[Point]

    @property
    def color(self) -> str:
        return _ORANGE if self.name == VALIDATION else _BLUE


@dataclass(frozen=True, slots=True)
class Chart:
    """One or two curves of the same quantity, such as the loss of training and of validation."""

    title: str
    lines: Sequence[Line]
    x_unit: str


def find_finite(points: Iterable[Point]) -> list[Point]:
    """Return the points that can be drawn."""
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def image(chart: Chart) -> str:
    """Return an element of HTML that shows a chart.

    It is an image with the drawing as its address: the viewers of notebooks take out drawings
    that are elements themselves, unless the reader has declared the notebook trusted.
    """
    source = base64.b64encode(draw(chart).encode()).decode()
    return (
        f'<img width="{_WIDTH}" height="{_HEIGHT}" alt="{escape(describe(chart))}"'
        f' src="data:image/svg+xml;base64,{source}">'
    )


def describe(chart: Chart) -> str:
    """Return in words how the curves of a chart begin and end."""
    parts = (
        f"{line.name} from {number(line.points[0][1])} to {number(line.points[-1][1])}"
        for line in chart.lines
    )
    return f"{one_line(chart.title)}: {', '.join(parts)}"


def draw(chart: Chart) -> str:
    """Return a chart as SVG."""
    points = [point for line in chart.lines for point in line.points]
    values = [y for _, y in points]
    x_range = _spread([0.0, *(x for x, _ in points)], 0.0)
    y_range = _spread(values, 0.05)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(point: Point) -> tuple[float, float]:
        x = _LEFT + (right - _LEFT) * _part(point[0], x_range)
        return x, bottom - (bottom - _TOP) * _part(point[1], y_range)

    shapes = [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="{_GRAY}"/>',
        *(
            f'<text x="{_LEFT - 6}" y="{place((0.0, y))[1] + 4:.1f}" text-anchor="end">'
            f"{number(y)}</text>"
            for y in dict.fromkeys((min(values), max(values)))
        ),
        f'<text x="{right}" y="{_HEIGHT - 7}" text-anchor="end">'
        f"{number(x_range[1])} {escape(chart.x_unit)}</text>",
        f'<text x="{_LEFT}" y="{_HEIGHT - 7}">{number(x_range[0])}</text>',
        _title(chart),
    ]
    for line in chart.lines:
        places = [place(point) for point in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{line.color}" stroke-width="1.8"'
            ' stroke-linejoin="round"/>'
        )
        shapes.append(
            f'<circle cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}" r="3" fill="{line.color}"/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        f' font-family="sans-serif" font-size="11" fill="{_GRAY}">{"".join(shapes)}</svg>'
    )


def _title(chart: Chart) -> str:
    legend = "".join(
        f'<tspan dx="8" fill="{line.color}">{escape(line.name)} {number(line.points[-1][1])}'
        "</tspan>"
        for line in chart.lines
    )
    title = escape(one_line(chart.title))
    return f'<text x="{_LEFT}" y="15"><tspan font-weight="bold">{title}</tspan>{legend}</text>'


def _spread(values: Sequence[float], margin: float) -> tuple[float, float]:
    """Return the range of an axis; ``margin`` is a part of the values' own range."""
    least, most = min(values), max(values)
    if most == least:
        half = abs(most) / 2 or 0.5
        return least - half, most + half
    more = (most - least) * margin
    return least - more, most + more


def _part(value: float, limits: tuple[float, float]) -> float:
    """Return where a value lies between two others, 0 to 1."""
    return (value - limits[0]) / (limits[1] - limits[0])


def sparkline(values: Sequence[float]) -> str:
    """Return finite values as one line of blocks, such as ``█▆▄▃▂▁``."""
    count = min(len(values), _BLOCKS_OF_LINE)
    last = len(values) - 1
    chosen = [values[round(index * last / max(count - 1, 1))] for index in range(count)]
    limits = _spread(chosen, 0.0)
    return "".join(_BLOCKS[min(7, int(8 * _part(value, limits)))] for value in chosen)
