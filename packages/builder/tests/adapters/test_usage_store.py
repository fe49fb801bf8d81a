"""What tenants have used, over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl_builder.adapters.usage_store import UsageStore
from edl_builder.core.failure import BuilderError
from edl_builder.core.identifiers import Caller
from edl_builder.core.quota import Quota

ANN = Caller("ann")


def test_what_is_used_is_known_after_a_restart(tmp_path: Path) -> None:
    path, quota = tmp_path / "usage.json", Quota(builds=2)
    for _ in range(2):
        UsageStore(path, lambda: 0.0).begin(ANN, quota)
    with pytest.raises(BuilderError, match="used up its 2 builds"):
        UsageStore(path, lambda: 0.0).begin(ANN, quota)
    UsageStore(path, lambda: 86400.0).begin(ANN, quota)


def test_bytes_are_refused_as_they_come(tmp_path: Path) -> None:
    store = UsageStore(tmp_path / "usage.json", lambda: 0.0)
    store.add_bytes(ANN, Quota(nbytes=100), 100)
    with pytest.raises(BuilderError, match="used up its 100 bytes"):
        store.add_bytes(ANN, Quota(nbytes=100), 1)


def test_who_has_no_quota_is_not_written_down(tmp_path: Path) -> None:
    """Each connection to an open service is a caller of its own."""
    store = UsageStore(tmp_path / "usage.json", lambda: 0.0)
    for number in range(100):
        caller = Caller(f"ipv4:10.0.0.1:{number}")
        store.begin(caller, Quota())
        store.add_bytes(caller, Quota(), 1)
        with store.count_time(caller):
            pass
    assert not (tmp_path / "usage.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"day": 1}', '{"day": 1, "usages": {"a": 1}}'])
def test_a_damaged_file_counts_from_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "usage.json").write_text(content)
    UsageStore(tmp_path / "usage.json", lambda: 0.0).begin(ANN, Quota(builds=1))
