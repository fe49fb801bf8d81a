"""What the page does with masters that are gone, hostile texts, and more than fits."""

from __future__ import annotations

import json

import pytest

from edl_proto.v1.job_pb2 import Event
from page import jobs
from page.conftest import Serve, Visit
from page.hostile import HOSTILE, spoil
from page.reading import EVENTS_SHOWN, LOST, facts, overflowing, rows


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_master_that_is_gone_and_comes_back(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(60.0)
    server = serve(status, events)
    tab = visit(server, may_lose_master=True)
    tab.wait_for(f"{EVENTS_SHOWN} === {len(events)}")
    server.close()
    tab.wait_for(LOST)
    said = tab.text("#lost")
    assert "The master has not been reachable since" in said
    assert "(no connection)" in said
    assert "last known state" in said
    assert "Next try in" in said or "Trying again" in said
    assert tab.text("#state").strip() == "last known: running"
    assert tab.evaluate("document.title") == "44 % running, not reachable – mnist-digits"
    assert tab.text("#percent") == "44.2 %", "the last known state stays"

    # Another incarnation tells its events from the first one on, and may know fewer.
    status.incarnation = "1f0c-02"
    serve(status, events[:5], server.port)
    tab.wait_for(f"!{LOST}")
    tab.wait_for(f"{EVENTS_SHOWN} === 5")
    assert tab.text("#state").strip() == "running"
    assert tab.evaluate("document.getElementById('lost').hidden")


def test_a_master_that_answers_with_errors(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.training(60.0))
    tab = visit(server, may_lose_master=True)
    server.failing = True
    tab.wait_for(LOST)
    assert "(the master answered HTTP 500)" in tab.text("#lost")
    server.failing = False
    tab.wait_for(f"!{LOST}")


def test_a_master_that_never_answers(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.training(60.0))
    server.failing = True
    tab = visit(server, may_lose_master=True, ready=LOST)
    assert "The master cannot be reached (the master answered HTTP 500)." in tab.text("#lost")
    assert tab.evaluate("document.getElementById('main').hidden")


@pytest.mark.parametrize("width", [360, 1280])
def test_hostile_text_stays_text(serve: Serve, visit: Visit, width: int) -> None:
    status, events = jobs.failed_training()
    server = serve(spoil(status), [spoil(event) for event in events])
    tab = visit(server, width=width, mobile=width < 500)
    tab.wait_for(f"{EVENTS_SHOWN} === {len(events)}")

    assert tab.evaluate("window.caught") is None
    shown = json.dumps(HOSTILE.replace("\u0000", "").strip()[:90])
    for place in (
        "#job-name",
        "#verdict",
        "#workers",
        "#tasks",
        "#dead-letters",
        "#events",
        "#job",
    ):
        text = f"document.querySelector('{place}').textContent"
        assert tab.evaluate(f"{text}.includes({shown})"), f"{place} shows the text as it is"
    assert tab.evaluate("document.title").count("<script>") == 1
    assert tab.evaluate("document.querySelectorAll('img').length") == 1, "only the page's own"
    assert tab.evaluate("document.querySelectorAll('script').length") == 2, "only the page's own"
    assert tab.evaluate("document.querySelectorAll('[onload], [onerror]').length") == 0
    assert overflowing(tab) == []


@pytest.mark.parametrize("job", ["training", "failed", "evaluation", "prediction"])
def test_nothing_overflows_the_page(serve: Serve, visit: Visit, job: str) -> None:
    tab = visit(serve(*jobs.SCENARIOS[job](74.0)), width=360, mobile=True)
    tab.wait_for(f"{EVENTS_SHOWN} > 0")
    tab.wait_for("!document.getElementById('timeline').hidden")
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for width in (360, 320, 640, 641, 760, 761, 768, 980, 981, 1280, 1920):
        tab.resize(width, 800, mobile=width < 500)
        # Curves are drawn anew after the window has changed; until then they are as wide as before.
        tab.wait_for(
            "[...document.querySelectorAll('.uplot')].every("
            "c => Math.abs(c.clientWidth - c.parentElement.clientWidth) <= 1)"
        )
        assert tab.evaluate("innerWidth") == width
        assert overflowing(tab) == [], f"at {width} pixels"


def test_numbers_beyond_javascript_stay_exact(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    status.records_trained = 2**63 + 1
    tab = visit(serve(status, events))
    assert facts(tab, "#ledger")["records trained"] == "9,223,372,036,854,775,809"


def test_many_events_and_workers_come_in_portions(serve: Serve, visit: Visit) -> None:
    status, _ = jobs.training(74.0)
    while len(status.workers) < 40:
        worker = status.workers.add()
        worker.CopyFrom(status.workers[0])
        worker.id = len(status.workers) - 1
    events = [
        Event(number=n, kind="Noted", message=f"number {n}", severity="info" if n % 50 else "error")
        for n in range(1, 401)
    ]
    tab = visit(serve(status, events))
    tab.wait_for(f"{EVENTS_SHOWN} === 60")
    assert "number 400" in tab.text("#events > li:first-child")
    assert len(rows(tab, "#workers")) == 24
    tab.tap("#workers-more")
    tab.wait_for("document.querySelector('#workers').tBodies[0].rows.length === 40")
    assert tab.evaluate("document.getElementById('workers-more').hidden")

    assert tab.text("#events-more") == "show older ones (340 events)"
    tab.tap("#events-more")
    tab.wait_for(f"{EVENTS_SHOWN} === 300")
    tab.tap("#events-filter")
    tab.wait_for(f"{EVENTS_SHOWN} === 8")
    assert "number 400" in tab.text("#events > li:first-child")
    assert "number 50" in tab.text("#events > li:last-child")
