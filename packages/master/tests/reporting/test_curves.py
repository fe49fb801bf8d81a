"""Curves of a bounded number of points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_master.core.curves import MAX_POINTS, Curve, Point
from edl_master.reporting.curves import Curves


@given(st.integers(0, 5000), st.sampled_from([2, 4, 10, MAX_POINTS]))
def test_a_curve_stays_small_and_keeps_its_end_and_its_mean(count: int, most: int) -> None:
    curve = Curve(most)
    for step in range(count):
        curve.add(Point(step, step / 10, float(step)))
    points = curve.points()
    assert len(points) <= most
    assert len(points) >= min(count, most // 2)
    steps = [point.step for point in points]
    assert steps == sorted(set(steps))
    if count:
        assert points[-1].step == count - 1
        # Each point is the mean of as many as lie between it and the one before.
        before, total = -1, 0.0
        for point in points:
            total += point.value * (point.step - before)
            before = point.step
        assert total == pytest.approx(count * (count - 1) / 2)


def test_a_curve_goes_on_where_its_job_does() -> None:
    curves = Curves()
    points = [Point(step, float(step), 1.0) for step in range(10)]
    curves.restore("loss", points, last_step=6)
    curves.add("loss", Point(8, 20.0, 0.5))
    assert [point.step for point in curves.all()["loss"]] == [0, 1, 2, 3, 4, 5, 6, 8]


def test_short_curves_are_exact() -> None:
    curves = Curves()
    points = [Point(step, 0.0, 2.0**step) for step in range(50)]
    for point in points:
        curves.add("loss", point)
    curves.add("accuracy", points[0])
    assert curves.all() == {"loss": points, "accuracy": points[:1]}
