"""Rates and times of a job."""

from __future__ import annotations

import json

from edl_master.core.progress import Progress


def test_the_pace_leaves_out_start_and_end() -> None:
    progress = Progress(10.0)
    progress.pass_time(100.0)
    assert progress.mean_records_per_s == 0.0
    for second in range(21):  # the first after 10 s of start, then one batch of ten each second
        progress.pass_time(110.0 + second)
        progress.records(10, 110.0 + second)
    progress.pass_time(150.0)
    assert progress.mean_records_per_s == 10.0


def test_records_done_all_at_once_have_no_pace() -> None:
    progress = Progress(10.0)
    progress.pass_time(0.0)
    progress.pass_time(3.0)
    progress.records(40, 3.0)
    progress.records(40, 3.0)
    assert progress.mean_records_per_s == 0.0


def test_the_pace_goes_on_with_the_next_master() -> None:
    first = Progress(10.0)
    for now in (0.0, 5.0, 6.0):
        first.pass_time(now)
        if now:
            first.records(8, now)
    second = Progress(10.0)
    second.restore(json.loads(json.dumps(first.snapshot())))
    assert second.mean_records_per_s == first.mean_records_per_s == 8.0
    for now in (70.0, 73.0):
        second.pass_time(now)
    second.records(24, 73.0)
    assert second.mean_records_per_s == 8.0


def test_no_time_left_is_told_from_a_few_seconds_of_work() -> None:
    progress = Progress(10.0)
    for second in range(31):  # the first records are done after 20 s
        progress.pass_time(float(second))
        if second >= 20:
            progress.records(10, float(second))
        assert (progress.eta_s(100, float(second)) > 0) == (second == 30), second
    assert progress.eta_s(0, 30.0) == 0.0
