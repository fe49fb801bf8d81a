"""The same MNIST job as pods of a cluster and as local processes, in turn, on the same cores.

One worker each, an image that the node has already, and a cluster of one node that starts before
the first run. Each platform is the first of every other pair, so that a machine whose speed drifts
favours neither. Seconds count from the start of ``edl train``; there, less is better. Records per
second are from the end of the first epoch to the end of the last. A worker of two is lost by a
signal to its process; the time is until its master has taken its task back, which is then the next
to be leased. ``EDL_BENCH_RUNS`` is the number of pairs (5), ``EDL_BENCH_RECORDS`` that of records
(32,000: in fewer, noise is greater than the difference), ``EDL_BENCH_LOSSES`` how many workers
each platform loses (4). Needs root and what ``./dev cluster`` needs.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.jobs import EDL, write_data
from bench.measure import ROOT, Measure
from edl_kubernetes.cluster import objects

EPOCHS, BATCH = 4, 64
RECORDS = int(os.environ.get("EDL_BENCH_RECORDS", "32000"))
RUNS = int(os.environ.get("EDL_BENCH_RUNS", "5"))
LOSSES = int(os.environ.get("EDL_BENCH_LOSSES", "4"))
_LOOK_EVERY_S = 0.02
_LIMIT_S = 900.0
_LOSSES = ("WorkerPreempted", "WorkerExited", "WorkerLost")
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
    """The times of one job.

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
        data = write_data(files, "digits", RECORDS)
        with _cluster(work, files) as pods:
            home = work / "home"
            environ = {"EDL_HOME": str(home), "EDL_PLATFORM": "processes"}
            local = Platform("processes", environ, (), home / "jobs")
            pairs = []
            for run in range(RUNS):
                pairs.append(_pair(pods, local, run, files, data))
                print(f"  {run + 1} of {RUNS}: {pairs[-1]}", file=sys.stderr, flush=True)
            lost = [_lose_workers(platform, files, data) for platform in (pods, local)]
    return [
        _measure("training", "records/s", pairs, lambda timing: timing.records_per_s, 0.95),
        _measure("submission → worker ready", "s", pairs, lambda timing: timing.ready_s),
        _measure("submission → first update seen", "s", pairs, lambda timing: timing.update_s),
        _measure("submission → end of the command", "s", pairs, lambda timing: timing.end_s),
        _compare("worker killed → task taken back", "s", list(zip(*lost, strict=True))),
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
        _weigh_pods(cluster.layout.cgroup)
        submitter = jobs_namespace.prepare(cluster, files)
        jobs = files / jobs_namespace.STATE
        yield Platform("pods", submitter.environ, submitter.arguments, jobs)
    finally:
        cluster.end()


def _weigh_pods(name: str) -> None:
    """Give all pods together as much weight as the machine has processors, as a kubelet does.

    The kubelet of the test cluster works below a control group of its own. Beside other programs,
    that group would get as much time as a single process of theirs.

    Args:
        name: how the groups' names begin.
    """
    for shares in Path("/sys/fs/cgroup/cpu").glob(f"{name}-*/cpu.shares"):
        shares.write_text(str(1024 * (os.cpu_count() or 1)))


def _pair(
    pods: Platform, local: Platform, run: int, files: Path, data: Path
) -> tuple[Timing, Timing]:
    order = (pods, local) if run % 2 == 0 else (local, pods)
    timings = {each.name: _time(each, run, files, data) for each in order}
    return timings[pods.name], timings[local.name]


def _time(platform: Platform, run: int, files: Path, data: Path) -> Timing:
    """Run a job to its end.

    Raises:
        RuntimeError: it failed, or lasted for longer than ``_LIMIT_S``.
    """
    name = f"{platform.name}-{run}"
    command = _train(platform, name, files, data, workers=1, epochs=EPOCHS)
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
            _, messages = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise RuntimeError(f"{name} does not end") from error
    if process.returncode:
        raise RuntimeError(f"{command}: {messages[-2000:]}")
    end_s = time.monotonic() - began
    events = _events(directory)
    (ready, *_) = _times(events, "WorkerReady")
    first, *_, last = _times(events, "EpochEnded")
    trained = RECORDS * (EPOCHS - 1) / (last - first).total_seconds()
    return Timing((ready - began_at).total_seconds(), update_s, end_s, trained)


def _train(
    platform: Platform, name: str, files: Path, data: Path, *, workers: int, epochs: int
) -> list[str]:
    return [
        *(*EDL, "train", "--name", name, "-q", *platform.arguments, *_MODEL),
        *("--data", f"{data}/train/*.recordio", "--num-workers", str(workers)),
        *("--num-epochs", str(epochs), "--minibatch-size", str(BATCH)),
        *("--output", str(files / f"model-{name}"), "--strategy", "parameter-server"),
    ]


def _lose_workers(platform: Platform, files: Path, data: Path) -> list[float]:
    """Seconds from each death of a worker until its task is taken back, in one job."""
    name = f"{platform.name}-lost-{os.getpid()}"
    directory = platform.jobs / name
    environ = {**os.environ, **platform.environ}

    def edl(*command: str) -> None:
        subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)

    edl(*_train(platform, name, files, data, workers=2, epochs=100_000), "--detach")
    found = []
    try:
        for number in range(LOSSES):
            worker = number % 2
            _until(lambda: _both_work(directory), f"two workers of {name}")
            at = datetime.now(UTC)
            for process in _processes(platform, name, worker):
                os.kill(process, signal.SIGKILL)
            found.append(_until(lambda at=at, who=worker: _loss_s(directory, who, at), "a loss"))
            print(f"  {name}, loss {number + 1}: {found[-1]:.2f} s", file=sys.stderr, flush=True)
    finally:
        edl(*EDL, "stop", name, "--now")
        edl(*EDL, "delete", name, "--yes")
    return found


def _both_work(directory: Path) -> bool:
    states = [each["state"] for each in _status(directory).get("workers", ())]
    return states.count("working") == 2


def _loss_s(directory: Path, worker: int, since: datetime) -> float:
    """Seconds until the end of a worker was noticed; 0: it was not yet."""
    for event in _events(directory):
        at = datetime.fromisoformat(event["at"])
        if event["kind"] in _LOSSES and event["facts"].get("worker") == str(worker) and at > since:
            return (at - since).total_seconds()
    return 0.0


def _processes(platform: Platform, job: str, worker: int) -> list[int]:
    """Return a worker's processes, by the job's directory, or by a variable of its pod."""
    if instances := sorted((platform.jobs / job / "instances").glob(f"worker-{worker}-*.json")):
        return [int(json.loads(instances[-1].read_bytes())["pid"])]
    mark = f"{objects.POD_NAME}={objects.pod_name(job, objects.WORKER, worker, '')}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _LIMIT_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"there is not {what}")
        time.sleep(_LOOK_EVERY_S)
    return found


def _status(directory: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory / "status.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _events(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "events.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines if line.endswith(b"}")]


def _first_update(process: subprocess.Popen[str], directory: Path, began: float) -> float:
    while process.poll() is None and time.monotonic() - began < _LIMIT_S:
        if int(_status(directory).get("records_trained", 0)) > 0:
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
    return _compare(f"one worker: {name}", unit, runs, target)


def _compare(
    name: str, unit: str, runs: list[tuple[float, float]], target: float | None = None
) -> dict[str, Any]:
    return Measure(
        name=f"mnist in pods, {name}",
        value=statistics.median(a for a, _ in runs),
        unit=unit,
        peer="local processes",
        peer_value=statistics.median(b for _, b in runs),
        ratio=statistics.median(a / b for a, b in runs),
        target=target,
        runs=runs,
    ).to_json()
