"""The page shows how each worker spent its time, as strips and as percentages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from edl_proto.v1.job_pb2 import JobStatus
from page import jobs
from page.browser import Tab
from page.conftest import Serve, Visit

DRAWN = "document.querySelectorAll('#timeline-rows .strip').length"
STRIP = "document.querySelectorAll('#timeline-rows .strip')[{}]"
START = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
PHASES = ["compute", "other", "input", "exchange", "loading", "idle"]


def read_cells(tab: Tab, row: int) -> list[str]:
    found: list[str] = tab.evaluate(
        f"[...document.getElementById('timeline-rows').tBodies[0].rows[{row}].cells]"
        ".slice(2).map(cell => cell.innerText)"
    )
    return found


def place(tab: Tab, row: int, share: float) -> tuple[float, float]:
    """A point in a strip, at this share of its width."""
    left, top, width, height = tab.evaluate(
        f"(s => {{ s.scrollIntoView({{block: 'center'}}); const r = s.getBoundingClientRect();"
        f" return [r.x, r.y, r.width, r.height]; }})({STRIP.format(row)})"
    )
    return left + width * share, top + height / 2


def read_description(tab: Tab) -> list[str]:
    """Return worker, time, phases and the event nearby, if there is one."""
    return tab.text("#timeline-reading").split(" · ")


def test_a_slow_phase_is_seen_in_strip_and_percentages(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0, START)))
    tab.wait_for(f"{DRAWN} === 3")
    heads = tab.evaluate(
        "[...document.querySelectorAll('#timeline-rows thead th')].map(h => h.textContent)"
    )
    assert heads[0] == "worker"
    assert heads[2:] == [*PHASES, "tasks", "lost"]
    fast, slow = read_cells(tab, 0), read_cells(tab, 2)
    input_ = PHASES.index("input")
    assert int(slow[input_].removesuffix(" %")) > int(fast[input_].removesuffix(" %")) + 8
    assert 97 <= sum(int(share.removesuffix(" %")) for share in fast[:6]) <= 103
    assert (fast[-1], slow[-1]) == ("0", "1")
    height = tab.evaluate(
        f"(p => p.getBBox().height)({STRIP.format(2)}.querySelector('path[data-phase=input]'))"
    )
    assert height >= 70, "12 seconds of it are input"

    tab.point(*place(tab, 2, 50 / 74))
    worker, when, what = read_description(tab)
    assert worker == "worker 2"
    assert when == "50 s after the start (09:30:50)"
    assert what == "input 72 %, compute 18 %, exchange 10 %"
    tab.point(5, 5)
    assert read_description(tab)[0].startswith("To read a strip")
    assert tab.text("#timeline-key") == "2 starts of workers\n1 preemption\n1 death of a worker"
    marks = tab.evaluate(
        f"[0, 1, 2].map(n => [...{STRIP.format('n')}.querySelectorAll('.mark')]"
        ".map(m => m.dataset.mark))"
    )
    assert marks == [[], ["preempted", "started"], ["died", "started"]]
    left = tab.evaluate(f"parseFloat({STRIP.format(2)}.querySelector('.mark').style.left)")
    assert left == pytest.approx(100 * 62.2 / 74, abs=3)


def test_strips_are_read_with_keys(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for(f"{DRAWN} === 3")

    def read_focused(attribute: str) -> str:
        return str(tab.evaluate(f"document.activeElement.getAttribute('aria-{attribute}')"))

    stops = "[...document.querySelectorAll('.strip')].map(s => s.tabIndex)"
    assert tab.evaluate(stops) == [0, -1, -1], "one stop of the tab key for all"
    tab.evaluate(f"{STRIP.format(0)}.focus()")
    tab.press("Home")
    assert read_focused("valuenow") == "0"
    assert "loading" in read_focused("valuetext")
    for _ in range(3):
        tab.press("PageUp")
    tab.press("ArrowLeft")
    first = read_focused("valuenow")
    tab.press("ArrowDown")
    assert read_focused("label").startswith("worker 1 over time")
    assert read_focused("valuenow") == first, "the same moment of the next worker"
    assert read_description(tab)[1:] == read_focused("valuetext").split(" · ")
    assert tab.evaluate(stops) == [-1, 0, -1]
    tab.press("End")
    assert read_focused("valuenow") == read_focused("valuemax")
    tab.press("Escape")
    assert read_description(tab)[0].startswith("To read a strip")


def test_of_many_workers_those_that_waited_most_come_first(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    while len(status.workers) < 60:
        worker = status.workers.add()
        worker.CopyFrom(status.workers[0])
        worker.id = len(status.workers) - 1
    tab = visit(serve(status, events), width=390, mobile=True)
    tab.wait_for(f"{DRAWN} === 12")
    shown = tab.evaluate(
        "[...document.querySelectorAll('#timeline-rows tbody tr')].map(r => r.dataset.key)"
    )
    assert "2" in shown, "its input was slow"
    assert tab.text("#timeline-note").endswith(
        "the 12 of 60 workers that waited most; edl trace has all"
    )
    tab.tap("#timeline-more")
    tab.wait_for(f"{DRAWN} === 50")
    assert tab.evaluate("document.getElementById('timeline-more').hidden")
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


def test_without_times_there_is_no_panel(serve: Serve, visit: Visit) -> None:
    status, _ = jobs.training(0.2)
    tab = visit(serve(JobStatus(name=status.name, state=status.state)))
    tab.wait_for(
        "performance.getEntriesByType('resource').some(e => e.name.endsWith('api/timeline')"
        " && e.responseEnd > 0)"
    )
    assert tab.evaluate("document.getElementById('timeline').hidden")


def test_areas_are_stacked_and_join_what_is_alike(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(1.0)))
    rows = "[[50, 50], [50, 30], [0, 90], [60, 60]]"
    found = tab.evaluate(f"import('./timeline.js').then(m => m.stackedAreas({rows}, 4))")
    assert found == [
        "M4 100V50H6V100zM7 100V40H8V100z",
        "M4 50V0H5V50zM5 50V20H6V50zM6 100V10H7V100zM7 40V0H8V40z",
    ]
