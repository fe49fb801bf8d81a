"""What an error shows of a worker's log."""

from __future__ import annotations

from pathlib import Path

from edl_master.adapters import worker_logs
from edl_runtime.monitoring.log_lines import LogEntry, as_json


def test_the_end_of_a_log_has_no_notices_of_tensorflow(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    notices = [
        "I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.",
        "I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized",
        "To enable the following instructions: AVX2 FMA, rebuild TensorFlow",
    ]
    log.write_text("\n".join(["of a former start", *notices, "MemoryError: why", *notices * 20]))
    start = log.read_text().index(notices[0])
    assert worker_logs.tail(log, start) == "MemoryError: why"


def test_the_end_of_a_log_in_json_is_for_people(tmp_path: Path) -> None:
    """This is the log of a container: users search an error for the words of its exception."""
    log = tmp_path / "worker-0.log"
    said = LogEntry(0.0, "ERROR", "a.b", "it failed", {}, "Traceback:\n  x\nValueError: why")
    log.write_text(f"printed\n{as_json(said)}\n")
    assert worker_logs.tail(log, 0).splitlines() == [
        "printed",
        "1970-01-01T00:00:00.000Z E a.b: it failed",
        "Traceback:",
        "  x",
        "ValueError: why",
    ]
