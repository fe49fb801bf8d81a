"""Jobs of ``edl train`` for benchmarks, and how fast their peers say that they were."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from bench.measure import ROOT

EDL = (str(Path(sys.executable).parent / "edl"),)
UNSECURED = (sys.executable, "-m", "bench.peers.unsecured_edl")
"""The same command, whose jobs have no identities."""
UNMEASURED = (sys.executable, "-m", "bench.peers.unmeasured_edl")
"""The same command, whose jobs have no metrics."""
UNTIMED = (sys.executable, "-m", "bench.peers.untimed_edl")
"""The same command, whose jobs keep no timeline."""

_numbers = itertools.count()
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def train(
    work: Path,
    *options: str,
    data: str,
    workers: int,
    batch: int,
    epochs: int,
    records: int,
    edl: tuple[str, ...] = EDL,
    overlap: bool = True,
) -> float:
    """Records per second of a job, from its own events.

    From the end of the first epoch to the end of the last: no process starts, nothing is compiled
    meanwhile.

    Args:
        work: a folder for the job.
        options: which model; they may have another strategy than the parameter server.
        data: RecordIO files with so many ``records``.
        workers, batch, epochs: as for the command.
        edl: the command.
        overlap: whether one worker computes while its gradients are sent.
    """
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    command = [
        *(*edl, "train", "--name", name, "-q", "--strategy", "parameter-server", *options),
        *("--data", data, "--num-workers", str(workers), "--num-epochs", str(epochs)),
        *("--minibatch-size", str(batch), "--output", str(work / name)),
        # What is measured is the rate, and so what edl has for it.
        *(("--overlap",) if workers == 1 and overlap else ()),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "EDL_HOME": str(work / "home")},
        cwd=ROOT,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    ends = [
        datetime.fromisoformat(event["at"])
        for event in map(json.loads, (work / "home/jobs" / name / "events.jsonl").open())
        if event["kind"] == "EpochEnded"
    ]
    return records * (epochs - 1) / (ends[-1] - ends[0]).total_seconds()


def peer(module: str, *arguments: object, env: Mapping[str, str] | None = None) -> float:
    """Records per second of a peer, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.peers.{module}", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
        check=False,
        env={**os.environ, **_QUIET, **(env or {})},
    )
    if done.returncode:
        raise RuntimeError(f"the peer failed: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["records_per_s"])


def write_data(work: Path, tool: str, records: int) -> Path:
    """Write data with one of ``tools/``; return its folder."""
    subprocess.run(
        [sys.executable, f"tools/{tool}.py", str(work / "data"), "--records", str(records)],
        cwd=ROOT,
        check=True,
        stdout=sys.stderr,
    )
    return work / "data"
