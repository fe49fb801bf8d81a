"""A reader of the page sees the right numbers, live, whatever the job is and does."""

from __future__ import annotations

import time

from edl_proto.errors import ErrorCode
from edl_proto.v1 import error_pb2, job_pb2
from edl_proto.v1.job_pb2 import JobStatus
from page import jobs
from page.conftest import Serve, Visit
from page.reading import EVENTS_SHOWN, FINAL, LOST, facts, rows


def test_a_running_job_shows_its_statistics(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    status.embedding_rows["users"] = 12_345
    tab = visit(serve(status, events))
    tab.wait_for(f"{EVENTS_SHOWN} > 0")

    assert tab.evaluate("document.title") == "55 % running – mnist-digits"
    assert tab.text("#job-name") == "mnist-digits"
    assert tab.text("#job-type") == "edl training job"
    assert tab.text("#state").strip() == "running"
    assert tab.text("#percent") == "55.3 %"
    assert tab.text("#eta").startswith("about 56 s left, until ")
    assert tab.text("#elapsed").startswith("running for 1 min 14 s, started ")
    assert tab.evaluate("document.getElementById('bar').ariaValueNow") == "55.3"
    assert facts(tab, "#stats") == {
        "records": "166,080 of 300,000",
        "epoch": "3 of 5",
        "records/s": "2,353 at present",
        "loss": "0.1035 latest mean",
        "steps": "2,595 minibatches applied",
        "parameter version": "2,595 updates made",
        "embedding rows": "12,345 of table users",
        "goodput": "94.0 % productive time",
    }
    worker = ["1", "working", "training/3/12", "798", "879", "1", "0.7 s ago"]
    assert rows(tab, "#workers")[1] == [*worker, "preempted (SIGTERM), task handed back"]
    assert tab.text("#workers-note") == "3 working · 2 to 4 wanted"
    assert rows(tab, "#tasks") == [
        ["training", "32", "3", "40", "2", "0"],
        ["evaluation", "0", "0", "6", "0", "0"],
        ["evaluation summary", "0", "0", "2", "0", "0"],
        ["export", "1", "0", "0", "0", "0"],
    ]
    assert facts(tab, "#ledger") == {
        "records trained": "166,080",
        "records computed again": "128",
        "preemptions": "1",
        "worker failures": "1",
        "gradients rejected": "1",
        "mean staleness": "1.86 updates",
    }
    assert facts(tab, "#job")["output"] == "/home/ada/models/mnist-digits"
    assert tab.evaluate(EVENTS_SHOWN) == len(events)
    assert tab.evaluate("document.getElementById('dead').hidden")
    assert tab.evaluate("document.getElementById('verdict').hidden")


def test_the_page_follows_the_job(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.training(20.0))
    tab = visit(server)
    tab.wait_for(f"{EVENTS_SHOWN} > 0")
    before = tab.evaluate(EVENTS_SHOWN)
    assert tab.text("#percent") == "12.5 %"
    tab.tap("#events > li:last-child summary")
    tab.evaluate("window.keptRow = document.querySelector('#workers tbody tr')")

    status, events = jobs.training(100.0)
    server.tell(status, events)
    tab.wait_for("document.getElementById('percent').innerText === '75.9 %'")
    tab.wait_for(f"{EVENTS_SHOWN} === {len(events)}")
    assert len(events) > before
    assert tab.evaluate("document.title").startswith("75 % running")
    order = tab.evaluate("[...document.querySelectorAll('#events > li')].map(e => e.dataset.key)")
    assert [int(number) for number in order] == sorted(range(1, len(events) + 1), reverse=True)
    # What the reader had opened stays open, and rows are changed, not replaced.
    assert tab.evaluate("document.querySelector('#events > li:last-child details').open")
    assert tab.evaluate("document.querySelector('#workers tbody tr') === window.keptRow")
    assert tab.evaluate("document.querySelectorAll('.chart').length") == 3


def test_a_failed_job_says_what_where_and_what_to_do(serve: Serve, visit: Visit) -> None:
    status, events = jobs.failed_training()
    tab = visit(serve(status, events))
    tab.wait_for(f"{EVENTS_SHOWN} > 0")

    verdict = tab.text("#verdict")
    for part in (status.error.what, status.error.where, status.error.remedy):
        assert part in verdict
    assert "InvalidArgumentError: Input to DecodeRaw has length 783" in tab.text("#verdict pre")
    assert tab.text("#state").strip() == "failed"
    assert tab.evaluate("document.title") == "33 % failed – mnist-digits"
    # In sight without scrolling, above everything else of the job.
    place = "document.getElementById('verdict').getBoundingClientRect()"
    assert tab.evaluate(f"{place}.bottom < innerHeight")
    assert tab.evaluate(
        f"{place}.bottom <= document.getElementById('percent').getBoundingClientRect().top"
    )
    letters = tab.text("#dead-letters")
    assert "training/2/9" in letters
    assert "train-00007.rec [36864, 40960)" in letters
    assert status.dead_letters[0].error.remedy in letters
    newest = tab.text("#events > li:first-child")
    assert "error" in newest, "severity is a word"
    assert "JobFailed" in newest


def test_a_job_that_is_over_is_left_alone(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.training(999.0))
    tab = visit(server)
    tab.wait_for(FINAL)
    assert tab.text("#link") == "final: the job is over (succeeded)"
    assert tab.text("#state").strip() == "succeeded"
    assert "The model is trained, after 2 min 13 s." in tab.text("#verdict")
    assert "/home/ada/models/mnist-digits" in tab.text("#verdict")
    assert "each of 5 epochs: 300,000 in all" in tab.text("#ledger-note")
    assert tab.evaluate("document.title") == "100 % succeeded – mnist-digits"

    asked = len(tab.requests)
    assert sum("api/status" in url for url in tab.requests) <= 3
    server.close()  # as a master does after the end
    time.sleep(2.5)
    assert len(tab.requests) == asked
    assert not tab.evaluate(LOST), "the page does not wait for a master whose job is over"


def test_one_number_says_how_many_records_were_trained(serve: Serve, visit: Visit) -> None:
    """A minibatch is missing in the model: then no epoch is said to be whole."""
    status, events = jobs.training(999.0)
    status.records_trained -= jobs.MINIBATCH
    tab = visit(serve(status, events))
    tab.wait_for(FINAL)
    assert facts(tab, "#ledger")["records trained"] == "299,936"
    assert tab.text("#ledger-note") == "299,936 of 300,000 records."


def test_an_evaluate_job_shows_metrics_and_no_epochs(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.evaluation(4_000))
    tab = visit(server)
    assert tab.text("#job-type") == "edl evaluation job"
    assert list(facts(tab, "#stats")) == ["records", "records/s", "goodput"]
    assert tab.text("#curves-note") == "Metrics appear when all records are evaluated."
    assert tab.text("#workers-work") == "records"

    server.tell(*jobs.evaluation(10_000))
    tab.wait_for("document.querySelectorAll('#metrics .fact').length > 0")
    assert facts(tab, "#metrics") == {"accuracy": "0.9731", "auc": "0.9991", "loss": "0.0874"}
    assert tab.evaluate("document.querySelectorAll('.chart').length") == 0
    assert "All 10,000 records are done, each exactly once." in tab.text("#ledger-note")


def test_a_predict_job_counts_predictions(serve: Serve, visit: Visit) -> None:
    server = serve(*jobs.prediction(500_000))
    tab = visit(server)
    assert tab.text("#job-type") == "edl prediction job"
    stats = facts(tab, "#stats")
    assert stats["predictions"] == "500,000 made"
    assert stats["records"] == "500,000 of 1,250,000"
    assert not {"epoch", "loss", "steps"} & stats.keys()
    assert tab.evaluate("document.getElementById('curves').hidden")

    server.tell(*jobs.prediction(1_250_000))
    tab.wait_for("!document.getElementById('verdict').hidden")
    assert "1,250,000 predictions made, after" in tab.text("#verdict")
    assert "/home/ada/predictions/2026-11-03" in tab.text("#verdict")


def test_a_stopped_job_says_why(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(30.0)
    status.state = job_pb2.CANCELLED
    status.error.CopyFrom(
        error_pb2.Error(code=ErrorCode.STOPPED, what="Stopped by ada: the data is wrong.")
    )
    tab = visit(serve(status, events))
    assert tab.text("#state").strip() == "cancelled"
    assert "Stopped by ada: the data is wrong." in tab.text("#verdict")
    assert tab.evaluate("document.getElementById('verdict').dataset.tone") == "warning"


def test_a_failed_job_without_an_error(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(30.0)
    status.state = job_pb2.FAILED
    tab = visit(serve(status, events))
    assert tab.text("#verdict").strip() == "The job failed."


def test_a_success_with_dead_letters_says_so(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(999.0)
    status.dead_letters.extend(jobs.failed_training()[0].dead_letters)
    status.tasks["training"].dead = 1
    status.records_trained -= 4096
    tab = visit(serve(status, events))
    assert "But 1 task failed for good" in tab.text("#verdict")
    assert "exactly once" not in tab.text("#ledger-note")
    assert "training/2/9" in tab.text("#dead-letters")


def test_a_job_that_has_hardly_begun(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.training(0.5)))
    assert tab.text("#state").strip() == "starting"
    assert facts(tab, "#stats")["loss"] == "– latest mean"
    assert tab.text("#eta") == "workers start and load the model"
    assert tab.text("#curves-note") == "The first values appear after the first updates."
    assert {row[1] for row in rows(tab, "#workers")} == {"starting"}


def test_an_empty_status_is_shown_as_unknown(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(JobStatus()))
    assert tab.text("#job-name") == "unnamed job"
    assert tab.text("#percent") == "–"
    assert tab.text("#workers-note") == "no worker has started yet"
    assert tab.text("#events-empty") == "Nothing has happened yet."


def test_a_late_heartbeat_is_named(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    status.workers[0].heartbeat_age_s = 4.2
    status.workers[2].state = "lost"
    status.workers[2].heartbeat_age_s = 7.0
    tab = visit(serve(status, events))
    table = rows(tab, "#workers")
    assert table[0][6] == "late: 4.2 s ago"
    assert table[2][1] == "lost"
    assert tab.text("#workers-note") == "2 working · 1 lost · 2 to 4 wanted"


def test_settings_and_environment_are_unfolded(serve: Serve, visit: Visit) -> None:
    status, events = jobs.training(74.0)
    tab = visit(serve(status, events))
    tab.wait_for(f"{EVENTS_SHOWN} > 0")
    # An earlier release says neither.
    assert tab.evaluate("document.getElementById('setup').hidden")
    status.settings.update({"training.num_epochs": "5", "data": "<b>/data" + "/long" * 60})
    status.environment["keras"] = "3.9.0"
    status.worker_environment["keras"] = "3.15.1 (worker 0), 3.14.0 (worker 1)"
    tab = visit(serve(status, events))
    tab.wait_for("!document.getElementById('setup').hidden")
    assert tab.text("#setup").strip() == "Settings and environment"
    tab.tap("#setup summary")
    tab.wait_for("document.querySelector('#setup details').open")
    assert "training.num_epochs" in tab.text("#settings")
    assert "<b>/data" in tab.text("#settings"), "a text stays a text"
    assert "3.9.0" in tab.text("#environment")
    assert "3.14.0 (worker 1)" in tab.text("#worker-environment")
    assert "3.9.0" not in tab.text("#worker-environment")
    for width in (360, 768, 1280):
        tab.resize(width, 900)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_speaks_to_screen_readers(serve: Serve, visit: Visit) -> None:
    tab = visit(serve(*jobs.failed_training()))
    tab.wait_for(f"{EVENTS_SHOWN} > 0")
    tab.wait_for("!document.getElementById('timeline').hidden")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"] and "role" in node
    ]
    roles = {role for role, _ in named}
    assert {"main", "banner", "contentinfo", "table", "columnheader", "rowheader"} <= roles
    for expected in (
        ("table", "Workers"),
        ("table", "Tasks"),
        ("table", "Workers over time"),
        ("heading", "mnist-digits"),
        ("heading", "Events"),
        ("progressbar", "Progress"),
        ("slider", "loss: arrow keys read the curve, + and - zoom"),
        ("columnheader", "heartbeat"),
        ("columnheader", "exchange"),
        ("checkbox", "only warnings and errors"),
    ):
        assert expected in named, named
    assert not [name for role, name in named if role == "image" and not name]
    assert tab.evaluate("document.getElementById('announcement').role") == "status"
    assert tab.text("#announcement") == "Job mnist-digits: failed."
