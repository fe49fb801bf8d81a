"""The curves: read, zoomed, smoothed and compared, by pointer and by keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl_proto.v1.job_pb2 import Event
from page import jobs
from page.browser import Tab
from page.conftest import Serve, Visit

CHART = ".chart:first-child .chart-canvas"
OVER = f"{CHART} .u-over"
DRAWN = f"document.querySelector('{CHART} canvas') !== null"


def reading(tab: Tab) -> tuple[str, str]:
    return tab.text(".chart:first-child .chart-value"), tab.text(".chart:first-child .chart-place")


def read_attribute(tab: Tab, attribute: str) -> str:
    return str(tab.evaluate(f"document.querySelector('{CHART}').getAttribute('{attribute}')"))


def marks(tab: Tab) -> dict[str, float]:
    """Places of the first chart's marks, as shares of its width, by what they stand for."""
    found: dict[str, float] = tab.evaluate(
        f"Object.fromEntries([...document.querySelectorAll('{OVER} .mark')].map(m => "
        f"[m.dataset.mark, parseFloat(m.style.left) / m.closest('.u-over').clientWidth]))"
    )
    return found


def place(tab: Tab, share: float) -> tuple[float, float]:
    """A point in the first chart, at this share of its width."""
    left, top, width, height = tab.evaluate(
        f"(r => [r.x, r.y, r.width, r.height])"
        f"(document.querySelector('{OVER}').getBoundingClientRect())"
    )
    return left + width * share, top + height / 2


def test_curves_are_read_by_pointer_and_keys(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    points = status.curves[0].points
    tab = visit(serve(status, events))
    tab.wait_for(DRAWN)
    assert reading(tab) == ("0.1035", "update 2,595 · 1 min 14 s"), "the newest value by default"

    tab.point(*place(tab, 0.3))
    value, where = reading(tab)
    step = int(where.split()[1].replace(",", ""))
    (pointed,) = [point for point in points if point.step == step]
    assert step == pytest.approx(0.3 * 2595, abs=15)
    assert value == f"{pointed.value:.4f}"
    other = tab.text(".chart:nth-child(2) .chart-place")
    assert other == "update 937 · 29 s", "all curves are read at the same place"
    tab.point(5, 5)
    assert reading(tab)[0] == "0.1035", "without a pointer, the newest value again"

    tab.evaluate(f"document.querySelector('{CHART}').focus()")
    tab.press("Home")
    assert reading(tab) == (f"{points[0].value:.4f}", "update 1 · 4.2 s")
    tab.press("ArrowRight")
    assert reading(tab)[0] == f"{points[1].value:.4f}"
    expected = f"{points[1].value:.4f} at update {points[1].step} · 4.5 s"
    assert read_attribute(tab, "aria-valuetext") == expected
    tab.press("Escape")
    assert reading(tab)[0] == "0.1035"


def test_what_died_is_marked_on_all_curves(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(f"document.querySelectorAll('{OVER} .mark').length === 2")
    assert tab.evaluate("document.querySelectorAll('.chart .mark').length") == 6, "in 3 charts"
    assert tab.text("#marks-key") == "1 preemption\n1 death of a worker"
    updates = jobs.RATE / jobs.MINIBATCH / 2595
    expected = {"preempted": 31 * updates, "died": 58 * updates}
    assert marks(tab) == pytest.approx(expected, abs=0.01)
    tab.tap("#axis label:has([value=time])")
    expected = {"preempted": 35.2 / 74, "died": 62.2 / 74}
    assert marks(tab) == pytest.approx(expected, abs=0.01)
    tab.point(*place(tab, 35.2 / 74))
    assert reading(tab)[1].endswith(
        "Worker 1 was asked to leave and handed its task back after 9 of 64 minibatches."
    )


def test_each_restart_of_the_master_is_marked_once(serve: Serve, visit: Visit) -> None:
    """A lost server and SIGTERM are events of their own before a restart."""
    status, events = jobs.training(74.0)
    for kind, message in (
        ("ParameterServerLost", "Parameter server 0 ended by signal 9."),
        ("CheckpointRestored", "Continues from checkpoint job-00000007."),
        ("JobStarted", "The job continues from a checkpoint: 300000 records, 3 workers."),
        ("MasterSuspended", "The master received SIGTERM and ends; the job's state is kept."),
        ("CheckpointRestored", "Continues from checkpoint job-00000009."),
        ("JobStarted", "The job continues from a checkpoint: 300000 records, 3 workers."),
        ("JobStarted", "The job starts: 300000 records, 3 workers."),
    ):
        events.append(Event(number=len(events) + 1, kind=kind, message=message))
        events[-1].at, events[-1].at_s = events[-2].at, 70.0
    tab = visit(serve(status, events))
    tab.wait_for(f"document.querySelectorAll('{OVER} .mark').length === 6")
    key = "1 preemption\n1 death of a worker\n1 death of a parameter server"
    assert tab.text("#marks-key") == f"{key}\n3 restarts of the master"
    assert tab.text("#timeline-key").endswith("\n3 restarts of the master")

    def restarts(*events: Event) -> list[str]:
        given = json.dumps([{"number": str(e.number), "kind": e.kind} for e in events])
        found = f"new m.MarkedEvents().add({given}).map(e => e.number)"
        return list(tab.evaluate(f"import('./marks.js').then(m => {found})"))

    started = Event(number=2, kind="JobStarted")
    assert restarts(Event(number=1, kind="CheckpointRestored"), started) == [], "of an earlier job"
    assert restarts(started) == ["2"], "a saved page has only the latest events"


def test_curves_are_zoomed_by_pointer_and_keys(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(DRAWN)
    whole = marks(tab)
    (x1, y), (x2, _) = place(tab, 0.25), place(tab, 0.75)
    tab.drag(x1, y, x2, y)
    tab.wait_for("!document.getElementById('whole').hidden")
    zoomed = {"preempted": (whole["preempted"] - 0.25) * 2}
    assert marks(tab) == pytest.approx(zoomed, abs=0.02), "the other mark is out of sight"
    tab.tap("#whole")
    assert marks(tab) == pytest.approx(whole)

    tab.evaluate(f"document.querySelector('{CHART}').focus()")
    tab.press("End")
    tab.press("+")
    died = {"died": (whole["died"] - 0.75) * 4}
    assert marks(tab) == pytest.approx(died, abs=0.02)
    tab.press("-")
    tab.press("0")
    assert marks(tab) == pytest.approx(whole)


def test_curves_are_smoothed_and_drawn_by_magnitude(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(DRAWN)
    plain = picture(tab)
    tab.evaluate(
        "const it = document.getElementById('smoothing'); it.value = 9;"
        "it.dispatchEvent(new Event('input'))"
    )
    assert tab.text("#smoothing-note") == "mean of 9"
    smooth = picture(tab)
    tab.tap("#log")
    assert len({plain, smooth, picture(tab)}) == 3
    averages = tab.evaluate(
        "import('./chart.js').then(m => m.movingAverage([1, 3, null, 5, 9], 2))"
    )
    assert averages == [1, 2, None, 4, 7]


def picture(tab: Tab) -> str:
    """Return what the first chart shows now."""
    tab.evaluate("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")
    return str(tab.evaluate(f"document.querySelector('{CHART} canvas').toDataURL()"))


def test_a_value_that_is_no_number_is_a_gap(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(1.0)))
    points = [{"step": str(n), "at_s": n, "value": v} for n, v in enumerate([3, "NaN", 0, 2])]
    earlier = [{"step": 2, "at_s": 1, "value": 7}, {"step": 9, "at_s": 4, "value": 8}]

    def columns(view: dict[str, Any], other: list[dict[str, Any]]) -> Any:
        given = ", ".join(map(json.dumps, (points, other, view)))
        # undefined, where a curve has no point, is written as 0 here.
        return tab.evaluate(
            f"import('./chart.js').then(m => m.columns({given})"
            ".map(c => [...c].map(v => v === undefined ? 'none' : v)))"
        )

    view = {"axis": "step", "log": False, "smoothing": 1}
    assert columns(view, []) == [[0, 1, 2, 3], [3, None, 0, 2]]
    assert columns(view | {"log": True}, [])[1] == [3, None, None, 2], "no logarithm of 0"
    assert columns(view, earlier) == [
        [0, 1, 2, 3, 9],
        [3, None, 0, 2, "none"],
        ["none", "none", 7, "none", 8],
    ]


def test_charts_fit_their_window(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(DRAWN)
    for width in (700, 360):
        tab.resize(width, 900)
        tab.wait_for(
            f"(c => c.querySelector('.uplot').clientWidth === Math.floor(c.clientWidth)"
            f" && c.clientWidth > 100)(document.querySelector('{CHART}'))"
        )
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_colours_are_the_systems_until_the_reader_chooses(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.training(74.0))
    tab = visit(server)
    tab.wait_for(DRAWN)
    light = picture(tab)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(ground) == "rgb(244, 245, 246)"
    tab.prefer(dark=True)
    tab.wait_for(f"{ground} === 'rgb(14, 17, 20)'")
    assert picture(tab) != light, "charts are painted anew"
    tab.evaluate(
        "const it = document.getElementById('colours'); it.value = 'light';"
        "it.dispatchEvent(new Event('change'))"
    )
    assert tab.evaluate(ground) == "rgb(244, 245, 246)"
    assert picture(tab) == light
    tab.evaluate("window.isOld = true; location.reload()")
    tab.wait_for(f"!window.isOld && {DRAWN}")
    assert tab.evaluate(ground) == "rgb(244, 245, 246)", "the choice is kept"
    tab.evaluate("localStorage.clear()")


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
        "format",
        "tickNumber",
        [
            ([0, 1], "0"),
            ([0.92, 0.02], "0.92"),
            ([-0.25, 0.25], "−0.25"),
            ([0.025, 0.025], "0.025"),
            ([1500, 500], "1.5k"),
            ([30000, 10000], "30k"),
            ([2_000_000, 1_000_000], "2M"),
            ([1e-5, 1e-5], "1.0e−5"),
        ],
    ),
    (
        "format",
        "tickTime",
        [
            ([0, 30], "0"),
            ([30, 30], "30 s"),
            ([60, 30], "1 min"),
            ([90, 30], "1:30 min"),
            ([5400, 1800], "1:30 h"),
            ([172_800, 86400], "2 d"),
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
