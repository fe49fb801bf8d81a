from edl_proto.timestamps import rfc3339


def test_times_are_rfc_3339_in_utc() -> None:
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"
    assert rfc3339(1_700_000_000.25, "seconds") == "2023-11-14T22:13:20Z"
    assert rfc3339(1_700_000_000.25, "microseconds") == "2023-11-14T22:13:20.250000Z"
