"""The curves: axes with round numbers, and a reading by pointer and by keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from page import jobs
from page.browser import Tab
from page.conftest import Serve, Visit

CHART = ".chart:first-child .chart-canvas"


def reading(tab: Tab) -> tuple[str, str]:
    return tab.text(".chart:first-child .chart-value"), tab.text(".chart:first-child .chart-place")


def labels(tab: Tab, anchor: str) -> list[str]:
    found: list[str] = tab.evaluate(
        f"[...document.querySelectorAll('{CHART} text')]"
        f".filter(t => t.getAttribute('text-anchor') === '{anchor}').map(t => t.textContent)"
    )
    return found


def test_curves_are_read_by_pointer_and_keys(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    points = status.curves[0].points
    tab = visit(serve(status, events))
    tab.wait_for(f"document.querySelector('{CHART} .line') !== null")
    assert reading(tab) == ("0.1035", "update 2,595 · 1 min 14 s"), "the newest value by default"
    assert labels(tab, "end") == ["0", "1", "2", "3"]
    assert labels(tab, "middle") == ["0", "1k", "2k"]

    box = tab.evaluate(
        f"(r => [r.x, r.y, r.width, r.height])"
        f"(document.querySelector('{CHART}').getBoundingClientRect())"
    )
    tab.point(box[0] + box[2] * 0.5, box[1] + box[3] * 0.5)
    value, place = reading(tab)
    step = int(place.split()[1].replace(",", ""))
    (pointed,) = [point for point in points if point.step == step]
    assert 1000 < step < 1600
    assert value == f"{pointed.value:.4f}"
    tab.point(5, 5)
    assert reading(tab)[0] == "0.1035", "without a pointer, the newest value again"

    tab.evaluate(f"document.querySelector('{CHART}').focus()")
    tab.press("Home")
    assert reading(tab) == (f"{points[0].value:.4f}", "update 1 · 4.2 s")
    tab.press("ArrowRight")
    assert reading(tab)[0] == f"{points[1].value:.4f}"
    told = tab.evaluate(f"document.querySelector('{CHART}').getAttribute('aria-valuetext')")
    assert told == f"{points[1].value:.4f} at update {points[1].step} · 4.5 s"
    tab.press("Escape")
    assert reading(tab)[0] == "0.1035"


def test_curves_over_time(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(f"document.querySelector('{CHART} .line') !== null")
    tab.tap("#axis label:has([value=time])")
    assert labels(tab, "middle") == ["0", "30 s", "1 min"]
    tab.tap("#axis label:has([value=step])")
    assert labels(tab, "middle") == ["0", "1k", "2k"]


def test_a_value_that_is_no_number_is_a_gap(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    status.curves[0].points[100].value = float("nan")
    status.curves[0].points[150].value = float("inf")
    tab = visit(serve(status, events))
    tab.wait_for(f"document.querySelectorAll('{CHART} .line').length === 3")
    lines = tab.evaluate(
        f"[...document.querySelectorAll('{CHART} .line')].map(l => l.getAttribute('d'))"
    )
    assert [line.count(",") for line in lines] == [100, 49, len(status.curves[0].points) - 151]
    assert not any("NaN" in line or "Infinity" in line for line in lines)


def test_charts_fit_their_window(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(f"document.querySelector('{CHART} .line') !== null")
    for width in (700, 360):
        tab.resize(width, 900)
        tab.wait_for(
            f"(c => c.viewBox.baseVal.width === Math.floor(c.clientWidth) && c.clientWidth > 100)"
            f"(document.querySelector('{CHART}'))"
        )
        assert tab.evaluate("document.documentElement.scrollWidth") == width


CASES: list[tuple[str, str, list[tuple[list[Any], Any]]]] = [
    (
        "format",
        "duration",
        [
            ([0], "0.0 s"),
            ([9.96], "10 s"),
            ([59.4], "59 s"),
            ([59.6], "1 min 0 s"),
            ([3599.7], "1 h 0 min"),
            ([8040], "2 h 14 min"),
            ([86399], "1 d 0 h"),
            ([273600], "3 d 4 h"),
            ([-1], "–"),
            (["NaN"], "–"),
        ],
    ),
    (
        "format",
        "measure",
        [
            ([0], "0.0000"),
            ([0.12345], "0.1235"),
            ([12.345], "12.35"),
            ([-123.45], "−123.5"),
            ([12345.6], "12,346"),
            ([0.00012], "1.20e−4"),
            ([3e9], "3.00e9"),
            (["NaN"], "–"),
            (["-Infinity"], "−∞"),
            ([None], "–"),
        ],
    ),
    ("format", "count", [(["18446744073709551615"], "18,446,744,073,709,551,615"), ([""], "–")]),
    ("format", "rate", [([0], "0"), ([3.14159], "3.14"), ([42.42], "42.4"), ([2353.4], "2,353")]),
    ("format", "percent", [([0.9999], "99.9"), ([1], "100"), ([0.29], "29.0"), ([0.0004], "0.0")]),
    (
        "scale",
        "niceStep",
        [([10, 5], 2), ([1, 4], 0.25), ([0.07, 4], 0.02), ([3, 5, True], 1), ([7, 3, True], 5)],
    ),
    (
        "scale",
        "multiples",
        [
            ([0, 0.3, 0.1], [0, 0.1, 0.2, 0.3]),
            ([937, 938, 1], [937, 938]),
            ([-1, 1, 1], [-1, 0, 1]),
        ],
    ),
]


@pytest.mark.parametrize(("module", "function", "cases"), CASES, ids=[case[1] for case in CASES])
def test_numbers_and_ticks(
    serve: Serve,
    visit: Visit,
    module: str,
    function: str,
    cases: list[tuple[list[Any], Any]],
) -> None:
    tab = visit(serve(*jobs.training(1.0)))
    arguments = json.dumps([given for given, _ in cases])
    found = tab.evaluate(
        f"import('./{module}.js').then(m => {arguments}.map(given => m.{function}(...given)))"
    )
    assert dict(zip(map(str, (g for g, _ in cases)), found, strict=True)) == {
        str(given): expected for given, expected in cases
    }


AXES: list[tuple[str, list[float], list[str]]] = [
    ("valueAxis", [0.02, 2.7, 4], ["0", "1", "2", "3"]),
    ("valueAxis", [0.931, 0.974, 4], ["0.92", "0.94", "0.96", "0.98"]),
    ("valueAxis", [-0.5, 0.5, 4], ["−0.50", "−0.25", "0", "0.25", "0.50"]),
    ("valueAxis", [0.5, 0.5, 4], ["0.40", "0.45", "0.50", "0.55", "0.60"]),
    ("valueAxis", [1, 1, 4], ["0.900", "0.925", "0.950", "0.975", "1.000"]),
    ("valueAxis", [12000, 48000, 4], ["10k", "20k", "30k", "40k", "50k"]),
    ("countAxis", [0, 3, 5], ["0", "1", "2", "3"]),
    ("countAxis", [0, 2400, 5], ["0", "0.5k", "1.0k", "1.5k", "2.0k"]),
    ("countAxis", [0, 5_000_000, 5], ["0", "1M", "2M", "3M", "4M", "5M"]),
    ("timeAxis", [0, 95, 4], ["0", "30 s", "1 min", "1:30 min"]),
    ("timeAxis", [0, 7000, 4], ["0", "30 min", "1 h", "1:30 h"]),
    ("timeAxis", [0, 200_000, 3], ["0", "1 d", "2 d"]),
]


def test_axes_have_round_labels(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(1.0)))
    for function, given, expected in AXES:
        found = tab.evaluate(
            f"import('./scale.js').then(m => (a => a.ticks.map(a.label))"
            f"(m.{function}(...{json.dumps(given)})))"
        )
        assert found == expected, (function, given)
