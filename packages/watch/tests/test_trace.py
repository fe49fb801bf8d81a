"""A job's trace, as viewers of traces read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl import codec
from edl.core.job_status import JobEvent
from edl.core.timeline import TimelineSpan, phase_shares
from edl_watch.trace import chrome_trace

AT = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def of_kind(trace: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == kind]


def event(at: str, kind: str, **facts: str) -> JobEvent:
    return JobEvent(1, at, 0.0, kind, "warning", f"{kind} happened", facts)


def test_tasks_are_slices_on_the_track_of_their_worker() -> None:
    spans = [
        TimelineSpan(AT, 1.5, 3, "training/1/7", "done"),
        TimelineSpan(AT + 2, 0.25, 4, "evaluation/1/0", "lost"),
    ]
    trace = chrome_trace("mine", spans, [])
    first, second = of_kind(trace, "X")
    assert (first["name"], first["ts"], first["dur"]) == ("training", 0, 1_500_000)
    assert (second["name"], second["ts"]) == ("evaluation (lost)", 2_000_000)
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in of_kind(trace, "M")
        if e["name"] == "thread_name"
    }
    assert names[first["pid"], first["tid"]] == "worker 3"
    assert names[second["pid"], second["tid"]] == "worker 4"
    json.dumps(trace, allow_nan=False)


def test_no_slices_of_a_worker_overlap() -> None:
    """Perfetto drops those that do; times are rounded to milliseconds when they are recorded."""
    spans = [
        TimelineSpan(AT, 1.001, 1, "training/1/0", "done"),
        TimelineSpan(AT + 0.5, 1.0, 2, "training/1/1", "done"),
        TimelineSpan(AT + 1.0, 0.25, 1, "training/1/2", "done"),
        TimelineSpan(AT + 3.0, 1.0, 1, "training/1/3", "done"),
    ]
    slices = of_kind(chrome_trace("mine", [*reversed(spans)], []), "X")
    found = [(one["tid"], one["ts"], one["dur"]) for one in slices]
    assert found == [
        (101, 0, 1_000_000),
        (101, 1_000_000, 250_000),
        (101, 3_000_000, 1_000_000),
        (102, 500_000, 1_000_000),
    ]


def test_threads_are_told_apart_by_perfetto() -> None:
    """It takes 0 for the idle thread, and numbers of threads for unique over all processes."""
    spans = [TimelineSpan(AT, 1.0, worker, "training/1/0", "done") for worker in range(3)]
    events = [event("2023-11-14T22:13:21.000Z", "Scaled")]
    trace = chrome_trace("mine", spans, events)["traceEvents"]
    named = [e for e in trace if e["name"] == "thread_name"]
    threads = {e["tid"]: e["pid"] for e in named}
    assert len(threads) == len(named) == 4
    assert 0 not in {*threads, *threads.values()}
    for told in trace:
        if told["ph"] in "Xi":
            assert threads[told["tid"]] == told["pid"]
    of_tasks = {told["tid"]: told["pid"] for told in trace if told["ph"] == "X"}
    assert not of_tasks.keys() & {1, 2, 3}, "of no main thread"


def test_phases_are_counters_that_are_0_while_the_worker_is_away() -> None:
    spans = [
        TimelineSpan(AT, 2.0, 0, phases={"compute": 1.5, "idle": 0.5}),
        TimelineSpan(AT + 2, 2.0, 0, phases={"compute": 2.0}),
        TimelineSpan(AT + 60, 1.0, 0, phases={"loading": 1.0}),
    ]
    samples = of_kind(chrome_trace("mine", spans, []), "C")
    seen = [(s["ts"] // 1_000_000, s["args"]["compute"], s["args"]["loading"]) for s in samples]
    assert seen == [(0, 75.0, 0), (2, 100.0, 0), (4, 0, 0), (60, 0, 100.0), (61, 0, 0)]
    assert {s["name"] for s in samples} == {"worker 0"}


def test_events_are_instants_beside_the_work_they_are_about() -> None:
    spans = [TimelineSpan(AT, 9.0, 1, "training/1/0", "lost")]
    events = [
        event("2023-11-14T22:13:24.500Z", "WorkerExited", worker="1"),
        event("2023-11-14T22:13:21.000Z", "Scaled", workers="1:4"),
        event("no time", "Damaged"),
    ]
    trace = chrome_trace("mine", spans, events)
    exited, scaled = of_kind(trace, "i")
    (task,) = of_kind(trace, "X")
    assert (exited["name"], exited["ts"]) == ("WorkerExited", 4_500_000)
    assert (exited["pid"], exited["tid"]) == (task["pid"], task["tid"])
    assert (scaled["ts"], scaled["pid"]) == (1_000_000, 1)
    assert scaled["args"] == {"message": "Scaled happened", "workers": "1:4"}


def test_a_job_that_has_done_nothing_has_a_trace() -> None:
    assert of_kind(chrome_trace("mine", [], []), "X") == []


def test_shares_of_a_worker_add_up_over_its_life() -> None:
    spans = [
        TimelineSpan(AT, 1.0, 2, phases={"compute": 1.0}),
        TimelineSpan(AT, 3.0, 0, phases={"idle": 3.0}),
        TimelineSpan(AT + 1, 3.0, 2, phases={"compute": 1.0, "exchange": 2.0}),
        TimelineSpan(AT, 3.0, 5, "training/1/0", "done"),
    ]
    assert phase_shares(spans) == {
        0: {"idle": 1.0},
        2: {"compute": pytest.approx(0.5), "exchange": pytest.approx(0.5)},
    }


def test_damaged_lines_are_left_out_and_the_rest_is_in_order() -> None:
    lines = [
        '{"at":12.5,"seconds":1,"worker":1,"phases":{"compute":0.5,"idle":0.5}}',
        '{"at":10.5,"seconds":2.5,"worker":0,"task":"training/1/3","outcome":"done","new":1}',
        '{"at":12',
        "[]",
        '{"at":"x","seconds":1,"worker":1,"task":"training/1/1"}',
        '{"at":1,"seconds":-1,"worker":1,"task":"training/1/1"}',
        '{"at":1,"seconds":NaN,"worker":1,"task":"training/1/1"}',
        '{"at":1,"seconds":1,"worker":0,"phases":{"compute":"much"}}',
    ]
    assert codec.decode_timeline(lines) == [
        TimelineSpan(10.5, 2.5, 0, "training/1/3", "done"),
        TimelineSpan(12.5, 1.0, 1, phases={"compute": 0.5, "idle": 0.5}),
    ]
