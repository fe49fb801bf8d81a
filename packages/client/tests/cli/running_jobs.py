"""What tests read of a job that runs: its status and its processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import Edl


def status(edl: Edl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = edl("status", name, "-o", "json").json
    return found


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return stat[0] != b"Z"


def running_job(edl: Edl, name: str) -> bool:
    return edl.run("status", name, "-o", "json").out.find('"RUNNING"') > 0


def master_pid(edl: Edl, name: str) -> int:
    pid: int = json.loads((edl.job_dir(name) / "master.json").read_text())["pid"]
    return pid
