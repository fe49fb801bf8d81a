"""The same MNIST job as pods of a cluster and as local processes, in turn, on the same cores.

One worker each, an image that the node has already, and a cluster of one node that starts before
the first run. Seconds count from the start of ``edl train``; there, less is better. Records per
second are from the end of the first epoch to the end of the last. ``EDL_BENCH_RUNS`` is the number
of pairs (3), ``EDL_BENCH_RECORDS`` that of records (12,800). Needs root and what ``./dev cluster``
needs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.jobs import EDL, written
from bench.measure import ROOT, Measure

EPOCHS, BATCH = 4, 64
RECORDS = int(os.environ.get("EDL_BENCH_RECORDS", "12800"))
RUNS = int(os.environ.get("EDL_BENCH_RUNS", "3"))
_LOOK_EVERY_S = 0.02
_LIMIT_S = 900.0
_MODEL = ("--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api")


@dataclass(frozen=True, slots=True)
class Platform:
    """Where jobs run.

    Attributes:
        name: of the platform, for names of jobs.
        environ: variables of the command.
        arguments: options of each job.
        jobs: the folder with the jobs' directories.
    """

    name: str
    environ: Mapping[str, str]
    arguments: tuple[str, ...]
    jobs: Path


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one job.

    Attributes:
        ready_s: until its worker is ready.
        update_s: until the status says that records are trained; the master writes it once a
            second.
        end_s: until the command has returned.
        records_per_s: while training.
    """

    ready_s: float
    update_s: float
    end_s: float
    records_per_s: float


def measures() -> list[dict[str, Any]]:
    # Below /tmp, pods would see a folder of their own.
    with tempfile.TemporaryDirectory(prefix="edl-bench-", dir="/var/tmp") as folder:
        work = Path(folder)
        files = work / "files"
        files.mkdir()
        data = written(files, "digits", RECORDS)
        with _cluster(work, files) as pods:
            home = work / "home"
            local = Platform("processes", {"EDL_HOME": str(home)}, (), home / "jobs")
            pairs = []
            for run in range(RUNS):
                pairs.append((_time(pods, run, files, data), _time(local, run, files, data)))
                print(f"  {run + 1} of {RUNS}: {pairs[-1]}", file=sys.stderr, flush=True)
    return [
        _measure("training", "records/s", pairs, lambda timing: timing.records_per_s, 0.95),
        _measure("submission → worker ready", "s", pairs, lambda timing: timing.ready_s),
        _measure("submission → first update seen", "s", pairs, lambda timing: timing.update_s),
        _measure("submission → end of the command", "s", pairs, lambda timing: timing.end_s),
    ]


@contextmanager
def _cluster(work: Path, files: Path) -> Iterator[Platform]:
    from tests.kubernetes.cluster import jobs_namespace, requirements
    from tests.kubernetes.cluster.cluster import Cluster

    if missing := requirements.missing():
        raise SystemExit(f"bench cluster_jobs needs: {', '.join(missing)}")
    # Pods and local processes have the same priority.
    cluster = Cluster.start(work / "cluster", niceness=0)
    try:
        submitter = jobs_namespace.prepare(cluster, files)
        jobs = files / jobs_namespace.STATE
        yield Platform("pods", submitter.environ, submitter.arguments, jobs)
    finally:
        cluster.end()


def _time(platform: Platform, run: int, files: Path, data: Path) -> Timing:
    """Run a job to its end.

    Raises:
        RuntimeError: it failed, or lasted for longer than ``_LIMIT_S``.
    """
    name = f"{platform.name}-{run}"
    command = [
        *(*EDL, "train", "--name", name, "-q", *platform.arguments, *_MODEL),
        *("--data", f"{data}/train/*.recordio", "--num-workers", "1"),
        *("--num-epochs", str(EPOCHS), "--minibatch-size", str(BATCH)),
        *("--output", str(files / f"model-{name}")),
    ]
    directory = platform.jobs / name
    began, began_at = time.monotonic(), datetime.now(UTC)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **platform.environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            update_s = _first_update(process, directory, began)
            _, said = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise RuntimeError(f"{name} does not end") from error
    if process.returncode:
        raise RuntimeError(f"{command}: {said[-2000:]}")
    end_s = time.monotonic() - began
    events = [json.loads(line) for line in (directory / "events.jsonl").open()]
    (ready, *_) = _times(events, "WorkerReady")
    first, *_, last = _times(events, "EpochEnded")
    trained = RECORDS * (EPOCHS - 1) / (last - first).total_seconds()
    return Timing((ready - began_at).total_seconds(), update_s, end_s, trained)


def _first_update(process: subprocess.Popen[str], directory: Path, began: float) -> float:
    while process.poll() is None and time.monotonic() - began < _LIMIT_S:
        try:
            status = json.loads((directory / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            status = {}
        if int(status.get("records_trained", 0)) > 0:
            break
        time.sleep(_LOOK_EVERY_S)
    return time.monotonic() - began


def _times(events: list[dict[str, Any]], kind: str) -> list[datetime]:
    return [datetime.fromisoformat(event["at"]) for event in events if event["kind"] == kind]


def _measure(
    name: str,
    unit: str,
    pairs: list[tuple[Timing, Timing]],
    figure: Callable[[Timing], float],
    target: float | None = None,
) -> dict[str, Any]:
    runs = [(figure(pods), figure(local)) for pods, local in pairs]
    return Measure(
        name=f"mnist in pods, one worker: {name}",
        value=statistics.median(a for a, _ in runs),
        unit=unit,
        peer="local processes",
        peer_value=statistics.median(b for _, b in runs),
        ratio=statistics.median(a / b for a, b in runs),
        target=target,
        runs=runs,
    ).to_json()
