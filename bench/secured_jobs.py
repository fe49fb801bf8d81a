"""Jobs of processes with identities next to the same jobs without: records per second, the start.

The start is how long the command takes until the job's master listens, and the job continues by
itself.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.jobs import EDL, UNSECURED
from bench.measure import ROOT, compare
from bench.mnist_local import MODEL
from bench.small_jobs import small_jobs

RUNS, STARTS, TARGET = 9, 9, 0.97


def _start_s(work: Path, command: tuple[str, ...]) -> float:
    """Seconds."""
    name = f"start-{time.monotonic_ns()}"
    environ = {**os.environ, "EDL_HOME": str(work / "home")}
    train = [
        *(*command, "train", "--name", name, "-q", "--detach", *MODEL),
        *("--data", f"{work}/data/train/*.recordio", "--output", str(work / name)),
    ]
    begun = time.perf_counter()
    subprocess.run(train, env=environ, cwd=ROOT, check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    stop = [*EDL, "stop", name, "--now"]
    subprocess.run(stop, env=environ, cwd=ROOT, check=True, capture_output=True)
    return seconds


def measures() -> list[dict[str, Any]]:
    """Secured next to unsecured, in pairs."""
    found = []
    for job in small_jobs():
        found.append(
            compare(
                f"{job.name}, edl train, 2 workers, secured",
                "records/s",
                job.run,
                "unsecured",
                partial(job.run, edl=UNSECURED),
                runs=RUNS,
                target=TARGET,
            ).to_json()
        )
        if job.name == "mnist":
            found.append(
                compare(
                    "start of a job, secured",
                    "s",
                    partial(_start_s, job.work, EDL),
                    "unsecured",
                    partial(_start_s, job.work, UNSECURED),
                    runs=STARTS,
                    target=None,
                ).to_json()
            )
    return found
