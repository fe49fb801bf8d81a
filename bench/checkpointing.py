"""What a checkpoint of 1 GB costs a worker that pushes, and what the server's memory is.

One worker pushes gradients of a model of 1 GB, SGD, without computing, while the server writes
checkpoints to a disk.

- pause: the longest push that met the beginning of a checkpoint, less the median of those that met
  none, next to the time to copy 1 GB from memory to memory in one thread, into memory that was
  used before. At most 1.2 of it is asked for; the ratio here is the other way round, so that more
  is better as everywhere: at least 1 / 1.2. The first checkpoint is one of its own.
- memory: of the serving process less what it has before there is a model, some seconds after the
  last push, next to the bytes of parameters and slots; at most 1.25, here at least 1 / 1.25. While
  gradients arrive it has one more buffer for each that arrives at a time.

``EDL_BENCH_LARGE=0`` takes 64 MB instead.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import ROOT, Measure
from bench.transport import Worker

CHECKPOINTS, QUIET_PUSHES, COPIES = 4, 7, 7
PAUSE_TARGET, MEMORY_TARGET = 1 / 1.2, 1 / 1.25
SETTLED_S = 15.0
"""After this time unused buffers have been given back."""


@dataclass
class Server:
    """The serving process: its address, and the pipe of its commands and answers."""

    process: subprocess.Popen[str]
    address: str
    fingerprint: str

    def checkpoint(self) -> float:
        """Have one written; return the seconds that it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def resident(self) -> int:
        """Bytes of memory that it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10


@contextmanager
def serving(floats: int, optimizer: str, directory: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.plane_server", "1", str(floats), optimizer, directory],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield Server(process, *process.stdout.readline().split())
    finally:
        process.kill()
        process.wait()


def pauses(server: Server, worker: Worker) -> tuple[float, list[float], list[float]]:
    """The median push, the longest extra of each checkpoint, and how long each was written."""
    quiet = statistics.median(_seconds(worker) for _ in range(QUIET_PUSHES))
    extras, writing = [], []
    for _ in range(CHECKPOINTS):
        over = threading.Event()

        def write(over: threading.Event = over) -> None:
            writing.append(server.checkpoint())
            over.set()

        thread = threading.Thread(target=write)
        thread.start()
        pushes = []
        while not over.is_set():
            pushes.append(_seconds(worker))
        thread.join()
        extras.append(max(pushes) - quiet)
        _seconds(worker)
    return quiet, extras, writing


def _seconds(worker: Worker) -> float:
    begun = time.perf_counter()
    worker.push()
    return time.perf_counter() - begun


def copying(nbytes: int) -> float:
    """Seconds to copy so many bytes: the median."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    seconds = []
    for _ in range(COPIES):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def measures() -> list[dict[str, Any]]:
    large = os.environ.get("EDL_BENCH_LARGE", "1") != "0"
    nbytes, label = (1_000_000_000, "1 GB") if large else (64_000_000, "64 MB")
    found = []
    with tempfile.TemporaryDirectory() as place, serving(1, "SGD", place) as empty:
        floor = empty.resident()
    with tempfile.TemporaryDirectory() as place, serving(nbytes // 4, "SGD", place) as server:
        worker = Worker(server.address, server.fingerprint, nbytes)
        for _ in range(2):  # memory is touched, loops are compiled
            worker.push()
        copy = copying(nbytes)
        quiet, extras, writing = pauses(server, worker)
        print(
            f"  {label}: push {quiet:.3f} s; extra {_join(extras)} s;"
            f" written in {_join(writing)} s; copy {copy:.3f} s",
            file=sys.stderr,
        )
        for name, some in (("the first", extras[:1]), ("later", extras[1:])):
            found.append(
                Measure(
                    f"pause of a push by {name} checkpoint, {label}",
                    statistics.median(some),
                    "s",
                    f"copying {label} in memory",
                    copy,
                    statistics.median(copy / max(extra, 1e-6) for extra in some),
                    PAUSE_TARGET,
                    [(copy, extra) for extra in some],
                ).to_json()
            )
    for optimizer, copies in (("SGD", 1), ("Adam", 3)):
        with (
            tempfile.TemporaryDirectory() as place,
            serving(nbytes // 4, optimizer, place) as server,
        ):
            worker = Worker(server.address, server.fingerprint, nbytes)
            for _ in range(3):
                worker.push()
            server.checkpoint()
            worker.push()
            busy = server.resident() - floor
            time.sleep(SETTLED_S)
            resident, held = server.resident() - floor, copies * nbytes
            print(f"  {optimizer}: {busy / held:.2f} of it just after a push", file=sys.stderr)
            found.append(
                Measure(
                    f"resident memory, {label}, {optimizer}",
                    resident / 1e9,
                    "GB",
                    "parameters and slots",
                    held / 1e9,
                    held / resident,
                    MEMORY_TARGET,
                    [(held / 1e9, resident / 1e9)],
                ).to_json()
            )
    return found


def _join(numbers: list[float]) -> str:
    return ", ".join(f"{number:.3f}" for number in numbers)
