"""What is said where no more files can be opened."""

from __future__ import annotations

import errno
import logging
import resource

import pytest

from edl_proto.file_limit import FileLimit, raise_limit, share


def test_it_warns_once_a_minute_and_of_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    now = [1000.0]
    limit = FileLimit("calls", lambda: now[0])
    with caplog.at_level(logging.WARNING):
        assert not limit.is_reason(OSError(errno.ECONNABORTED, "it has left"))
        for at in (0.0, 0.05, 59.0, 61.0, 62.0):
            now[0] = 1000.0 + at
            for code in (errno.EMFILE, errno.ENFILE):
                assert limit.is_reason(OSError(code, "no more"))
    said = [each.getMessage() for each in caplog.records]
    assert [each.startswith("calls cannot be accepted") for each in said] == [True, True]


def test_the_limit_is_raised_as_far_as_the_user_may(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, found: limits.append(found))
    raise_limit()
    assert limits[-1] == (4096, 4096)
    raise_limit()
    assert len(limits) == 2
    for before in ((1024, resource.RLIM_INFINITY), (1024, 1 << 20)):
        limits.append(before)
        raise_limit()
        assert limits[-1] == (1 << 16, before[1])
    assert share(2, 100) == 100
    assert share(2, 1 << 20) == 1 << 15
