"""The log files of a job: one of its master, and one of each worker and parameter server."""

from __future__ import annotations

from pathlib import Path

from edl.adapters.log_tail import tail
from edl_runtime.local import job_directory
from edl_runtime.monitoring.log_lines import readable


def log_file(job_dir: Path, worker: int | None = None) -> Path:
    """Return the log of a worker, or of the master."""
    file = "master.log" if worker is None else f"worker-{worker}.log"
    return job_dir / job_directory.LOGS / file


def log_files(job_dir: Path) -> dict[str, Path]:
    """Return the logs of master, workers and servers by source, the master's first."""
    found: dict[tuple[str, int], Path] = {("master", 0): log_file(job_dir)}
    for path in (job_dir / job_directory.LOGS).glob("*-*.log"):
        role, _, number = path.stem.partition("-")
        if role in ("worker", "server") and number.isdecimal():
            found[role, int(number)] = path
    return {
        role if role == "master" else f"{role} {number}": found[role, number]
        for role, number in sorted(found)
    }


def workers_with_logs(job_dir: Path) -> list[int]:
    """Return the numbers of the workers that have a log, in order."""
    logs = job_dir / job_directory.LOGS
    numbers = (path.stem.removeprefix("worker-") for path in logs.glob("worker-*.log"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def master_log_tail(job_dir: Path, lines: int = 20) -> str:
    """Return the last lines of the master's log, readable for people; empty if there is none."""
    return readable(tail(log_file(job_dir), lines))
