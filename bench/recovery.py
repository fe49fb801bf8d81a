"""How long it takes until a death is noticed and work goes on: medians and worst of some kills.

Two workers on the counting model, one machine. ``EDL_BENCH_KILLS`` is how often each is tried
(20). Times of workers are until the master has taken the task back: it is the next to be leased.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

import recordio
import recordio.example
from bench.measure import Measure
from edl_proto import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc

ROOT = Path(__file__).resolve().parent.parent
KILLS = int(os.environ.get("EDL_BENCH_KILLS", "20"))
RECORDS = 50_000
EDL = str(Path(sys.executable).parent / "edl")
_DEADLINE_S = 240.0


class Running:
    """A job that goes on for long enough."""

    def __init__(self, place: Path) -> None:
        data = place / "numbers.recordio"
        with recordio.Writer(str(data)) as writer:
            for number in range(RECORDS):
                writer.write(recordio.example.encode({"number": np.array([number])}))
        self._environ = {**os.environ, "EDL_HOME": str(place / "home")}
        self.directory = place / "home" / "jobs" / "recovery"
        self._edl(
            *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting"),
            *("--params", f"size={RECORDS}", "--data", str(data), "--num-epochs", "100000"),
            *("--minibatch-size", "16", "--num-workers", "2", "--name", "recovery", "--detach"),
            *("--output", str(place / "model")),
        )

    def _edl(self, *arguments: str) -> None:
        subprocess.run(
            [EDL, *arguments], env=self._environ, cwd=ROOT, check=True, capture_output=True
        )

    def close(self) -> None:
        self._edl("stop", "recovery", "--now")

    def status(self) -> job_pb2.JobStatus | None:
        try:
            with channels.connect(self.master()["address"]) as channel:
                job = job_pb2_grpc.JobStub(channel)
                found: job_pb2.JobStatus = job.GetStatus(job_pb2.GetStatusRequest(), timeout=2)
                return found
        except Exception:
            return None

    def master(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "master.json").read_bytes())
        return found

    def pid(self, worker: int) -> int:
        pods = sorted((self.directory / "pods").glob(f"worker-{worker}-*.json"))
        return int(json.loads(pods[-1].read_bytes())["pid"])

    def event_after(self, kind: str, worker: int, at: float) -> float:
        """When this happened to the worker, in seconds since the epoch; waits for it."""

        def look() -> float | None:
            for line in (self.directory / "events.jsonl").read_text().splitlines():
                event = json.loads(line)
                told = datetime.fromisoformat(event["at"]).timestamp()
                right = event["kind"] == kind and event["facts"].get("worker") == str(worker)
                if right and told >= at - 0.001:
                    return told
            return None

        return _until(look)

    def both_work(self) -> bool:
        status = self.status()
        return status is not None and [w.state for w in status.workers].count("working") == 2


def _until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _DEADLINE_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise RuntimeError("nothing happens any more")
        time.sleep(0.02)
    return found


def _kill_worker(job: Running, turn: int) -> float:
    at = time.time()
    os.kill(job.pid(turn % 2), signal.SIGKILL)
    return job.event_after("WorkerPreempted", turn % 2, at) - at


def _freeze_worker(job: Running, turn: int) -> float:
    at, pid = time.time(), job.pid(turn % 2)
    os.kill(pid, signal.SIGSTOP)
    missed = job.event_after("WorkerLost", turn % 2, at) - at
    # Killed, and not thawed: a body that came back once is given more time from then on.
    os.kill(pid, signal.SIGKILL)
    return missed


def _kill_master(job: Running, turn: int) -> float:
    before = job.master()
    os.kill(before["pid"], signal.SIGKILL)
    after = _until(lambda: (m := job.master())["pid"] != before["pid"] and m)
    began = time.time() - (_uptime() - int(after["start_time"]) / os.sysconf("SC_CLK_TCK"))
    first = _until(job.status).progress.steps
    _until(lambda: (s := job.status()) and s.progress.steps > first)
    return time.time() - began


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def measures() -> list[dict[str, object]]:
    """Each kind of death, ``KILLS`` times."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as place:
        job = Running(Path(place))
        try:
            for name, limit_s, act in (
                ("worker killed, task taken back", 2.0, _kill_worker),
                ("worker frozen, task taken back", 2.0, _freeze_worker),
                ("master killed, from its start to the next step", 5.0, _kill_master),
            ):
                times = []
                for turn in range(KILLS):
                    _until(job.both_work)
                    time.sleep(1.0)
                    times.append(act(job, turn))
                median, worst = statistics.median(times), max(times)
                for what, value in (("median", median), ("worst", worst)):
                    rows.append(
                        Measure(
                            name=f"{name}: {what} of {KILLS}",
                            value=value,
                            unit="s",
                            peer="limit",
                            peer_value=limit_s,
                            ratio=limit_s / value,
                            target=1.0,
                        ).to_json()
                    )
        finally:
            job.close()
    return rows
