"""What a tenant may use in a day."""

from __future__ import annotations

import re

import pytest

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.identifiers import Caller
from edl_builder.core.quota import DailyUsage, Quota

ANN, BOB = Caller("ann"), Caller("bob")
DAY = 86400.0


@pytest.mark.parametrize(
    ("quota", "what"),
    [
        (Quota(builds=2), "2 builds"),
        (Quota(nbytes=20), "20 bytes of archives"),
        (Quota(minutes=0.5), "0.5 minutes of building"),
    ],
)
def test_what_is_used_up_is_refused_until_tomorrow(quota: Quota, what: str) -> None:
    usage = DailyUsage()
    now = 100.5 * DAY
    usage.check(ANN, quota, now)
    used = usage.usage(ANN, now)
    used.builds, used.nbytes, used.minutes = 2, 20, 0.5
    with pytest.raises(BuilderError, match=f"ann has used up its {what}") as refused:
        usage.check(ANN, quota, now + DAY / 3)
    assert refused.value.failure.reason is Reason.LIMIT
    usage.check(BOB, quota, now)
    usage.check(ANN, Quota(), now)
    with pytest.raises(BuilderError):
        usage.check(ANN, quota, now - 2 * DAY)  # a clock that was set back
    usage.check(ANN, quota, now + DAY)


def test_what_an_hour_allows_comes_back_with_the_next() -> None:
    usage, quota, now = DailyUsage(), Quota(hourly_builds=2), 100.5 * DAY
    for _ in range(2):
        usage.check(ANN, quota, now)
        usage.count_build(ANN, now)
    with pytest.raises(BuilderError, match="ann has used up its 2 builds of this hour") as refused:
        usage.check(ANN, quota, now + 3599)
    assert "next hour" in refused.value.failure.remedy
    with pytest.raises(BuilderError):
        usage.check(ANN, quota, now - 3600)  # a clock that was set back
    usage.check(BOB, quota, now)
    usage.check(ANN, quota, now + 3600)
    assert usage.usage(ANN, now + 3600).builds == 2


def test_labels_of_metrics_have_no_spaces() -> None:
    assert [reason for reason in Reason if not re.fullmatch("[a-z_]+", reason)] == []
