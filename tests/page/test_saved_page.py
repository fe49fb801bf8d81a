"""The page as one file: opened without a server, with hostile texts, and compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from edl_master.adapters.saved_page import ReadEvents, saved_page
from edl_master.core.timeline_summary import JobTimes
from edl_proto.v1.job_pb2 import Event, JobStatus
from page import jobs, timelines
from page.browser import Chromium, Tab
from page.conftest import SHOWN, Serve, Visit
from page.hostile import HOSTILE, spoil

Open = Callable[[Path], Tab]


def arguments_of(
    status: JobStatus, events: Sequence[Event]
) -> tuple[JobStatus, ReadEvents, JobTimes]:
    return status, lambda after, limit: events[after : after + limit], timelines.times(status)


@pytest.fixture
def open_file(chromium: Chromium) -> Iterator[Open]:
    """Opens files; afterwards none may have complained or asked for another one."""
    opened: list[tuple[Tab, str]] = []

    def start(path: Path) -> Tab:
        tab = chromium.open(path.as_uri(), timezone="UTC")
        opened.append((tab, path.as_uri()))
        tab.wait_for(SHOWN)
        return tab

    yield start
    for tab, own in opened:
        complaints, asked = list(tab.complaints), list(tab.requests)
        tab.close()
        assert complaints == []
        assert [url for url in asked if url != own and not url.startswith("data:")] == []


def test_a_saved_page_shows_all_that_the_served_one_did(open_file: Open, tmp_path: Path) -> None:
    status, events = jobs.training(999.0)
    path = tmp_path / "model.html"
    path.write_bytes(saved_page(*arguments_of(status, events)))
    assert path.stat().st_size < 400_000
    tab = open_file(path)
    tab.wait_for("document.querySelectorAll('.chart .mark').length === 6")
    assert tab.evaluate("document.title") == "100 % succeeded – mnist-digits"
    assert tab.evaluate("document.querySelectorAll('#timeline-rows .strip').length") == 3
    assert tab.text("#link") == "final: the job is over (succeeded)"
    assert "each of 5 epochs: 300,000 in all" in tab.text("#ledger-note")
    assert tab.evaluate("document.querySelectorAll('#events > li').length") == len(events)
    assert tab.evaluate("document.getElementById('sources').hidden"), "no master answers"


def test_texts_of_the_job_stay_texts_in_the_file(open_file: Open, tmp_path: Path) -> None:
    status, events = jobs.failed_training()
    path = tmp_path / "model.html"
    path.write_bytes(saved_page(*arguments_of(spoil(status), [spoil(event) for event in events])))
    tab = open_file(path)
    assert tab.evaluate("window.caught") is None
    assert HOSTILE[:40] in tab.evaluate("document.getElementById('job-name').textContent")


def test_a_job_is_compared_with_the_saved_page_of_an_earlier_one(
    serve: Serve, visit: Visit, tmp_path: Path
) -> None:
    earlier = tmp_path / "model.html"
    other = tmp_path / "other.html"
    other.write_text("<p>no page of edl</p>")
    tab = visit(serve(*jobs.training(999.0)))
    earlier.write_text(tab.evaluate("fetch('saved').then(answer => answer.text())"))
    tab = visit(serve(*jobs.training(74.0)))
    tab.wait_for("document.querySelector('.chart canvas') !== null")
    before = tab.evaluate("document.querySelector('.chart canvas').toDataURL()")
    tab.choose_file("#earlier", earlier)
    tab.wait_for("document.getElementById('earlier-note').innerText === 'dashed: mnist-digits'")
    tab.wait_for(f"document.querySelector('.chart canvas').toDataURL().length !== {len(before)}")
    tab.choose_file("#earlier", other)
    tab.wait_for(
        "document.getElementById('earlier-note').innerText"
        " === 'other.html is not a page that edl saved.'"
    )
