"""What an error shows of a worker's log."""

from __future__ import annotations

from pathlib import Path

from edl_master.adapters import worker_logs


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
