"""Spans as lines and back."""

from __future__ import annotations

from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.timeline import PhaseSpan, Span, SpanOutcome, TaskSpan
from edl_master.reporting.timeline_lines import read_lines, to_lines

SPANS: list[Span] = [
    TaskSpan(1.7e9, 1.5, WorkerId(3), TaskKey(TaskType.EVALUATION, 2, 7), SpanOutcome.LOST),
    PhaseSpan(1.7e9, 1.0, WorkerId(0), {"compute": 0.75, "idle": 0.25}),
]


def test_lines_are_read_as_they_were_written() -> None:
    assert list(read_lines([to_lines(SPANS).encode()])) == [SPANS]


def test_unreadable_lines_are_left_out() -> None:
    broken = b"""{"at":1,"secon
[1]
17
{"at":1,"seconds":1,"worker":0}
{"at":1,"seconds":1,"worker":0,"task":"flying/1/2","outcome":"done"}
{"at":1,"seconds":1,"worker":0,"task":"training/1/2","outcome":"forgotten"}
{"at":1,"seconds":1,"worker":0,"task":"training/1","outcome":"done"}
{"at":1e300,"seconds":1,"worker":0,"phases":{}}
{"at":1,"seconds":NaN,"worker":0,"phases":{}}
{"at":1,"seconds":-1,"worker":0,"phases":{}}
{"at":1,"seconds":1,"worker":0,"phases":{"compute":"much"}}
{"at":1,"seconds":1,"worker":0,"phases":[1]}
\xff
"""
    assert list(read_lines([broken, to_lines(SPANS).encode()])) == [[], SPANS]
