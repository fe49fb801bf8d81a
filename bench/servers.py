"""How the cost of pushes grows with parameter servers and with workers.

1, 2 and 4 parameter servers, real processes, and 1, 2, 4 and 8 workers, light processes that
compute nothing: each pushes one gradient after the other and is answered with the newest values.
Beside them, in turn, the same workers and a master that serves alone.

- dense: 16 MB of float32, and 16 MB of values back.
- rows: the rows of 512 x 26 skewed ids at dim 16 (some 7,000 different ones), and as many back;
  of one table, and of 26.

For all: GB/s, both ways together, of all workers; the time of one push as its worker sees it; and
CPU of all processes, workers included, for one push. A machine of few cores shows how the *cost*
grows; that N servers bring N times as much needs cores, or machines, for all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

from bench.measure import ROOT, Measure, run_module

SERVERS, WORKERS = (1, 2, 4), (1, 2, 4, 8)
KINDS = {
    "dense, 16 MB": (4_000_000, 0, 1),
    "rows, dim 16": (64, 16, 1),
    "rows of 26 tables, dim 16": (64, 16, 26),
}
"""By name: numbers of the variable, and of a row; and tables."""

SECONDS = float(os.environ.get("EDL_BENCH_SECONDS", "2"))
RUNS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """The rates and costs of pushes during a measurement."""

    gb_per_s: float
    push_ms: float
    cpu_ms: float


class Deployment:
    """Parameter servers, and workers that push on command."""

    def __init__(
        self, stack: ExitStack, servers: int, model: tuple[int, int, int], workers: int
    ) -> None:
        floats, dim, tables = model
        line = stack.enter_context(
            run_module(
                "bench.peers.parameter_server_group",
                *map(str, (servers, floats, dim or 1, tables, workers)),
            )
        )
        self._pids: list[int] = json.loads(line)["pids"]
        self._workers = [
            stack.enter_context(_pushing(line, number, model)) for number in range(workers)
        ]

    def push(self, workers: int, seconds: float) -> Sample:
        """Let the first so many workers push at the same time."""
        chosen = self._workers[:workers]
        before = self._cpu_s()
        for told, _ in chosen:
            print(seconds, file=told, flush=True)
        found = [json.loads(answers.readline()) for _, answers in chosen]
        served_s = self._cpu_s() - before
        pushes = sum(one["pushes"] for one in found)
        return Sample(
            sum(one["nbytes"] / one["seconds"] for one in found) / 1e9,
            1e3 * sum(one["seconds"] for one in found) / pushes,
            1e3 * (served_s + sum(one["cpu_s"] for one in found)) / pushes,
        )

    def _cpu_s(self) -> float:
        """CPU that all that serve have used so far."""
        ticks = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS


@contextmanager
def _pushing(
    deployment: str, number: int, model: tuple[int, int, int]
) -> Iterator[tuple[IO[str], IO[str]]]:
    """Start a worker; yield the streams of its commands and of its answers."""
    arguments = [deployment, str(number), *map(str, model)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.pushing_worker", *arguments],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"worker {number} does not come up")
        yield process.stdin, process.stdout
    finally:
        process.kill()
        process.wait()


_STATISTICS: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("GB/s", "GB/s", lambda sample: sample.gb_per_s),
    ("one push", "ms", lambda sample: sample.push_ms),
    ("CPU of a push", "ms", lambda sample: sample.cpu_ms),
)


def measures() -> list[dict[str, Any]]:
    """Each number of servers and workers, next to the master alone."""
    rows = []
    most = max(WORKERS)
    for kind, model in KINDS.items():
        with ExitStack() as stack:
            alone = Deployment(stack, 0, model, most)
            alone.push(1, SECONDS / 4)  # loops are compiled, memory is touched
            for servers in SERVERS:
                with ExitStack() as inner:
                    deployment = Deployment(inner, servers, model, most)
                    deployment.push(1, SECONDS / 4)
                    for workers in WORKERS:
                        rows += _compare(kind, servers, workers, deployment, alone)
    return rows


def _compare(
    kind: str, servers: int, workers: int, deployment: Deployment, alone: Deployment
) -> list[dict[str, Any]]:
    pairs = [(deployment.push(workers, SECONDS), alone.push(workers, SECONDS)) for _ in range(RUNS)]
    where = f"{kind}: {servers} servers, {workers} workers"
    print(f"  {where}: {pairs[-1][0]}", file=sys.stderr, flush=True)
    found = []
    for what, unit, figure in _STATISTICS:
        both = [(figure(ours), figure(theirs)) for ours, theirs in pairs]
        found.append(
            Measure(
                name=f"{where}: {what}",
                value=median(ours for ours, _ in both),
                unit=unit,
                peer="the master alone",
                peer_value=median(theirs for _, theirs in both),
                ratio=median(ours / theirs for ours, theirs in both),
                target=None,
                runs=both,
            ).to_json()
        )
    return found
