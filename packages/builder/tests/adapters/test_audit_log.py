"""The audit log."""

from __future__ import annotations

import json
from pathlib import Path

from edl_builder.adapters.audit_log import AuditLog
from edl_builder.core.call_record import CallRecord


def record(
    status: str = "OK", tenant: str = "ann", method: str = "Build", **about: str
) -> CallRecord:
    name = f"/edl.v1.Builder/{method}"
    return CallRecord(tenant, name, "ipv4:10.0.0.1:5", about, status, 1.23456)


def lines(folder: Path) -> list[dict[str, object]]:
    text = (folder / "audit.jsonl").read_text("ascii")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_who_what_when_from_where_and_the_result(tmp_path: Path) -> None:
    AuditLog(tmp_path, lambda: 0.0)(record(build="b1", repository="r.com/a"))
    assert lines(tmp_path) == [
        {
            "at": "1970-01-01T00:00:00.000Z",
            "tenant": "ann",
            "method": "Build",
            "peer": "ipv4:10.0.0.1:5",
            "status": "OK",
            "seconds": 1.235,
            "build": "b1",
            "repository": "r.com/a",
        }
    ]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0


def test_successful_looks_are_not_written_but_refused_ones_are(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, lambda: 0.0)
    for method in ("Get", "List", "Watch", "Cancel"):
        audit(record(method=method))
        audit(record("NOT_FOUND", method=method))
    found = [(each["method"], each["status"]) for each in lines(tmp_path)]
    assert found == [
        *((method, "NOT_FOUND") for method in ("Get", "List", "Watch")),
        ("Cancel", "OK"),
        ("Cancel", "NOT_FOUND"),
    ]


def test_what_a_caller_writes_begins_no_line(tmp_path: Path) -> None:
    AuditLog(tmp_path, lambda: 0.0)(record(repository='x"}\n{"tenant": "bob"}\x1b[2J' + "y" * 5000))
    (line,) = lines(tmp_path)
    assert line["tenant"] == "ann"
    assert len((tmp_path / "audit.jsonl").read_bytes()) < 1000
    assert b"\x1b" not in (tmp_path / "audit.jsonl").read_bytes()


def test_refusals_have_a_rate_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    now = [1000.0]
    audit = AuditLog(tmp_path, lambda: now[0])
    for _ in range(5000):
        audit(record("UNAUTHENTICATED", tenant=""))
    assert len(lines(tmp_path)) == 20
    audit(record())  # what changes something is always written
    assert lines(tmp_path)[-1]["refusals_left_out"] == 4980
    now[0] += 1
    audit(record("UNAUTHENTICATED", tenant=""))
    assert len(lines(tmp_path)) == 22


def test_the_files_are_bounded(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, lambda: 0.0, nbytes=2000, files=3)
    for number in range(200):
        audit(record(build=str(number)))
    assert len(list(tmp_path.iterdir())) == 3
    assert all(path.stat().st_size < 2300 for path in tmp_path.iterdir())
    assert lines(tmp_path)[-1]["build"] == "199"


def test_a_full_disk_ends_no_call(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "none", lambda: 0.0)
    audit(record())
    (tmp_path / "none").mkdir()
    audit(record())
    assert lines(tmp_path / "none")[-1]["refusals_left_out"] == 1
