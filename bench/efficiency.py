"""Training under kills against training in peace: MNIST, two workers, records per second.

Each worker is killed every ``EDL_BENCH_PERIODS`` seconds (60 and 450), the two half a period
apart; one run lasts as many whole periods as two minutes need. The first row counts all that a kill
costs, the second leaves out what a new process spends until its worker is ready, most of it the
import of TensorFlow.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from bench.measure import Measure

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import digits  # noqa: E402  (found by the path above)

PERIODS = tuple(float(p) for p in os.environ.get("EDL_BENCH_PERIODS", "60,450").split(","))
MIN_S = 120.0
WORKERS = 2
EDL = str(Path(sys.executable).parent / "edl")


class Job:
    """One job on the digits, measured from its first trained record on."""

    def __init__(self, place: Path, name: str) -> None:
        self._environ = {**os.environ, "EDL_HOME": str(place / "home")}
        self.directory = place / "home" / "jobs" / name
        self._name = name
        self._edl(
            *("train", "--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api"),
            *("--data", f"{place}/data/train/*.recordio", "--num-epochs", "100000"),
            *("--minibatch-size", "64", "--num-workers", str(WORKERS), "--name", name),
            *("--output", str(place / name), "--detach", "--strategy", "parameter-server"),
        )
        deadline = time.monotonic() + 240
        while len(self._events("WorkerReady")) < WORKERS:
            if time.monotonic() > deadline:
                raise RuntimeError("the workers do not come up")
            time.sleep(0.2)
        time.sleep(5.0)  # pipelines are built, functions traced

    def _edl(self, *arguments: str) -> None:
        subprocess.run(
            [EDL, *arguments], env=self._environ, cwd=ROOT, check=True, capture_output=True
        )

    def close(self) -> None:
        self._edl("stop", self._name, "--now")

    def _events(self, *kinds: str) -> list[tuple[float, str, str]]:
        found = []
        for line in (self.directory / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["kind"] in kinds:
                at = datetime.fromisoformat(event["at"]).timestamp()
                found.append((at, event["kind"], event["facts"].get("worker", "")))
        return found

    def records(self) -> int:
        status = json.loads((self.directory / "status.json").read_bytes())
        return int(status["progress"]["records_done"])

    def kill(self, worker: int) -> None:
        for pod in (self.directory / "instances").glob(f"worker-{worker}-*.json"):
            os.kill(int(json.loads(pod.read_bytes())["pid"]), signal.SIGKILL)

    def absent_s(self, since: float, until: float) -> float:
        """Worker seconds between a death and the next instance's being ready."""
        gone: dict[str, float] = {}
        total = 0.0
        for at, kind, worker in self._events("WorkerPreempted", "WorkerExited", "WorkerReady"):
            if kind == "WorkerReady":
                total += max(0.0, at - max(since, gone.pop(worker, at)))
            else:
                gone.setdefault(worker, at)
        return total + sum(until - at for at in gone.values())


def _run(place: Path, name: str, seconds: float, period_s: float | None) -> tuple[float, float]:
    """Records per second: of all the time, and of the time in which workers were there."""
    job = Job(place, name)
    try:
        began, before = time.time(), job.records()
        kills = []
        if period_s is not None:
            kills = sorted(
                (period_s * (turn + (worker + 0.5) / WORKERS), worker)
                for worker in range(WORKERS)
                for turn in range(int(seconds // period_s) + 1)
            )
        for at, worker in kills:
            if at < seconds:
                time.sleep(max(0.0, began + at - time.time()))
                job.kill(worker)
        time.sleep(max(0.0, began + seconds - time.time()))
        done, now = job.records() - before, time.time()
        absent_s = job.absent_s(began, now)
        there = 1 - absent_s / (WORKERS * (now - began))
        return done / (now - began), done / (now - began) / there
    finally:
        job.close()


def measures() -> list[dict[str, object]]:
    """Each period next to a run in peace of the same length."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        place = Path(folder)
        digits.make(place / "data")
        for period_s in PERIODS:
            seconds = period_s * math.ceil(MIN_S / period_s)
            peace, _ = _run(place, f"peace-{period_s:g}", seconds, None)
            whole, without = _run(place, f"kills-{period_s:g}", seconds, period_s)
            target = 0.95 if period_s >= 450 else None
            for what, value in (("all costs", whole), ("without starting anew", without)):
                rows.append(
                    Measure(
                        name=f"a kill per worker per {period_s:g} s: {what}",
                        value=value,
                        unit="records/s",
                        peer="in peace",
                        peer_value=peace,
                        ratio=value / peace,
                        target=target,
                        runs=[(value, peace)],
                    ).to_json()
                )
    return rows
