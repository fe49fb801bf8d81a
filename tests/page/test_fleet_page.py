"""The page of all jobs in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edl.core.job_status import Failure
from edl_proto.errors import EdlError, ErrorCode
from edl_watch.fleet import UnreadableJob
from edl_watch.fleet_server import FleetServer
from page.axe import findings
from page.browser import Chromium, Tab
from page.hostile import HOSTILE


def job(name: str, **facts: Any) -> dict[str, Any]:
    """A running job, as ``FleetJob.to_dict`` gives it."""
    usual = {
        "verb": "train", "state": "RUNNING", "over": False, "done": 0.553, "workers": 3,
        "records_per_s": 2353.0, "rates": [0.0, 1200.0, 2353.0], "eta_s": 56.0, "restarts": 2,
        "loss": 0.1035, "seconds": 74.0, "started_at": "2026-11-03T12:00:00Z", "error": None,
    }  # fmt: skip
    return {"job": name, **usual, **facts}


DAMAGED = UnreadableJob(
    "old", Failure("DATA_DAMAGED", "the description cannot be read", "spec.json", "Delete the job.")
)
LONG = Failure("DATA_DAMAGED", "a long message " * 20, "/home/ada/" * 20, "Delete the job.")
JOBS = [
    job("mnist-digits"),
    job("night", verb="predict", done=None, eta_s=None, loss=None, rates=[], state="NOT_STARTED"),
    job(HOSTILE, state="FAILED", over=True),
    DAMAGED.to_dict(),
]
MANY = [*JOBS, UnreadableJob("older", LONG).to_dict()]


@pytest.fixture
def tab(chromium: Chromium) -> Iterator[Tab]:
    with FleetServer(lambda: JOBS, lambda name: "", 0) as server:
        tab = chromium.open(server.link(), timezone="UTC")
        tab.wait_for("document.querySelectorAll('tbody tr').length === 4")
        yield tab
        complaints = list(tab.complaints)
        tab.close()
    assert complaints == []


def cells(tab: Tab, row: int) -> list[str]:
    found: list[str] = tab.evaluate(
        f"[...document.querySelector('tbody').rows[{row}].cells].map(c => c.innerText.trim())"
    )
    return found


def test_jobs_are_rows(tab: Tab) -> None:
    name, *rest = cells(tab, 0)
    assert name.split() == ["mnist-digits", "train"]
    assert rest == ["running", "55 %", "56 s", "2,353", "", "0.1035", "3", "2", "1 min 14 s"]
    assert cells(tab, 1)[1:5] == ["not started", "–", "–", "2,353"]
    assert tab.text("#summary") == (
        "4 in all · 2 not over · 1 failed · 1 unreadable · 4,706 records/s"
    )
    line = "document.querySelector('polyline').getAttribute('points')"
    assert tab.evaluate(line) == "0.0,26.0 50.0,13.8 100.0,2.0"
    name, state, *rest = cells(tab, 3)
    message = "the description cannot be read\nspec.json\nDelete the job."
    assert (name, state) == (f"old\n{message}", "unreadable")
    assert set(rest) == {"–", ""}
    assert tab.evaluate("document.querySelectorAll('tbody a[href]').length") == 3
    tab.tap("#running")
    assert tab.evaluate("document.querySelectorAll('tbody tr').length") == 2


def test_the_page_says_why_the_jobs_cannot_be_listed(chromium: Chromium) -> None:
    def jobs() -> list[dict[str, Any]]:
        raise EdlError(ErrorCode.SYSTEM, "the folder of jobs cannot be read")

    with FleetServer(jobs, lambda name: "", 0) as server:
        tab = chromium.open(server.link(), timezone="UTC")
        tab.wait_for("document.body.classList.contains('is-lost')")
        assert "the folder of jobs cannot be read" in tab.text("#link")
        tab.close()


def test_names_stay_texts_and_nothing_sticks_out(tab: Tab) -> None:
    assert tab.evaluate("window.caught") is None
    for width in (360, 1000, 1001, 1280):
        tab.resize(width, 800, mobile=width < 500)
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_a_long_message_breaks_no_words_of_other_columns(chromium: Chromium) -> None:
    broken = (
        "[...document.querySelectorAll('thead th, td')].filter(cell => {"
        "const range = document.createRange(); range.selectNodeContents(cell);"
        "return !/\\s/.test(cell.innerText.trim()) && range.getClientRects().length > 1"
        "  && !cell.querySelector('progress, svg') }).map(cell => cell.innerText)"
    )
    with FleetServer(lambda: MANY, lambda name: "", 0) as server:
        tab = chromium.open(server.link())
        tab.wait_for("document.querySelectorAll('tbody tr').length === 5")
        for width in (1001, 1280):
            tab.resize(width, 800)
            assert tab.evaluate(broken) == []
            assert tab.evaluate("document.documentElement.scrollWidth") == width
        tab.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(tab: Tab, dark: bool) -> None:
    tab.prefer(dark=dark)
    assert findings(tab) == []
