import pytest

from edl_runtime.timestamps import parse_rfc3339, rfc3339


def test_times_are_rfc_3339_in_utc() -> None:
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"
    assert rfc3339(1_700_000_000.25, "seconds") == "2023-11-14T22:13:20Z"
    assert rfc3339(1_700_000_000.25, "microseconds") == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14T22:13:20.250Z", 1_700_000_000.25),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
        ("2023-11-14T22:13:20", 1_700_000_000.0),
        ("2023-11-14T22:13:20.250000999Z", 1_700_000_000.25),
        ("", None),
        ("1970-01-01 00:00:00", 0.0),
        ("15m", None),
        ("0001-01-01T00:00:00+14:00", None),  # in UTC it is in the year 0
    ],
)
def test_a_time_is_read_in_whatever_precision_and_zone(text: str, seconds: float | None) -> None:
    assert parse_rfc3339(text) == seconds
