from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chaos
from chaos.actions import SET_CLOCK
from chaos.audits import UPDATES, AuditedJob, counting, missing_files, mnist, stopped_too_early
from chaos.clock import Clock, can_set_clocks
from chaos.disk import small_disk
from chaos.faults import FAULTS, MAX_SERVERS, Fault, schedule
from chaos.inputs import Inputs
from chaos.job import Job
from edl_runtime.local import supervision

SHORT_S = 30.0
"""A job that would be left undisturbed so soon is not begun."""
LEAVE_S = 60.0
"""How long processes may take to leave a job that is over."""
REQUESTED_AFTER_S = 8.0
"""How long after the first record a job is stopped or deleted."""
END_S = 420.0
"""How long a job may take to end once nothing disturbs it any more."""


class Countdown:
    """Counts from the first job's first record on: a slow machine gets as many faults."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = math.inf

    def start(self) -> None:
        self._end = min(self._end, time.monotonic() + self._seconds)

    @property
    def left_s(self) -> float:
        return self._end - time.monotonic()


def disturb(job: Job, faults: Iterator[Fault], countdown: Countdown) -> Counter[str]:
    """Inject the faults of the schedule until the time is up, or the job is over."""
    done: Counter[str] = Counter()
    began = time.monotonic()
    while not job.has_begun and not job.is_over and time.monotonic() < began + END_S:
        time.sleep(0.1)
    countdown.start()
    if not any(fault.concerns(job) for fault in itertools.islice(faults, 1000)):
        raise RuntimeError("none of these faults concerns this job; do they need root, or --disks?")
    for fault in faults:
        if not fault.concerns(job):
            continue
        at = time.monotonic() + fault.after_s
        while time.monotonic() < at and countdown.left_s > 0 and not job.is_over:
            time.sleep(0.05)
        if job.is_over or countdown.left_s <= 0:
            return done
        targets = fault.targets(job)
        pids = f"pid {', '.join(map(str, targets))}" if targets else "no target"
        print(f"  {time.monotonic() - began:6.1f} s  {fault.describe(job)} ({pids})", flush=True)
        if targets:
            fault.inject(job, targets)
            done[fault.kind.name] += 1
    return done


def run(
    kind: AuditedJob,
    name: str,
    home: Path,
    faults: Iterator[Fault],
    countdown: Countdown,
    request: str,
    clock: Clock | None,
) -> list[str]:
    """One job from start to audit.

    Args:
        request: that ends it under faults: stop or delete; none: it ends by itself.

    Returns:
        What was wrong.
    """
    output = home.parent / f"{name}-model"
    began = time.monotonic()
    print(f"{name}: {kind.title}{f', {request} after a while' if request else ''}", flush=True)
    arguments = [*kind.arguments, "--output", str(output)]
    inputs = Inputs(kind.inputs, home.parent / f"{name}-inputs")
    job = Job(home, name, arguments, kind.servers, inputs, home.parent / "disk", clock)
    try:
        ending = EndingRequest(job, request)
        done = Counter[str]()
        while True:
            done += disturb(job, faults, countdown)
            job.follow()  # after a storm no client may be left, and one has to look at the job
            undisturbed_since = time.monotonic()
            while not ((ending.is_over and job.is_over) or ending.is_deleted):
                if time.monotonic() - undisturbed_since > END_S:
                    return [f"the job does not end: {json.dumps(job.status())[:2000]}"]
                time.sleep(0.2)
            if not refuses_data(job):
                break
            inputs.restore_data()
            job.edl("resume", name, "--code", "job", "--detach")
            print("  it has refused the data by name, and continues with what it had", flush=True)
        status = job.status()
        if not ending.is_deleted:
            _report(status, done, time.monotonic() - began)
        return left_behind(job, output) or audit(kind, job, output, status, done, ending)
    finally:
        job.close()


def refuses_data(job: Job) -> bool:
    """Whether the job has failed with the name of a file that was rewritten."""
    error = error_of(job)
    places = {error.get("where", ""), *error.get("what", "").split()}
    return job.status().get("state") == "FAILED" and any(
        str(f) in places for f in job.inputs.rewritten
    )


def error_of(job: Job) -> dict[str, Any]:
    return supervision.read_report(job.directory).get("error") or job.status().get("error") or {}


def audit(
    kind: AuditedJob,
    job: Job,
    output: Path,
    status: dict[str, Any],
    done: Counter[str],
    ending: EndingRequest,
) -> list[str]:
    """What is wrong with a job that is over."""
    if ending.is_deleted:
        return []
    rightly = {code for kind_ in FAULTS if done[kind_.name] for code in kind_.action.ends_with}
    error = error_of(job)
    if status["state"] == "FAILED" and error.get("code") in rightly:
        print(f"  audit: it ended with the reason {error['code']}")
        return []
    if ending.what and status["state"] == "CANCELLED":
        # In sync mode a gradient may be counted that waits for others.
        exact = kind.title.startswith(("counting, async", "counting_columns, async"))
        return stopped_too_early(job.disk, job.name, status) if exact else []
    if job.has_recorded_stop or status["state"] != "SUCCEEDED":
        return [f"the job ended {status['state']}: {json.dumps(error)}"]
    wanted = status.get("workers_wanted", {}).get("max")
    if wanted not in (scaled := job.last_scaled()):
        return [f"{wanted} workers are wanted, and {scaled} were acknowledged"]
    if missing := missing_files(output):
        return [f"the trained model lacks {' and '.join(missing)}"]
    return kind.audit(output, status)


def left_behind(job: Job, output: Path) -> list[str]:
    """Processes and files of a job that is over, some seconds later."""
    until = time.monotonic() + LEAVE_S
    while (left := job.processes()) and time.monotonic() < until:
        time.sleep(0.5)
    files = [*output.parent.glob(f".{output.name}.edl-*"), *job.directory.glob(".*.tmp")]
    files += job.directory.glob("end.json")
    names = ", ".join(str(path) for path in files)
    return [f"left behind: {what}" for what in (f"processes {left}" if left else "", names) if what]


class EndingRequest:
    """A command that ends a job, given by a client while the faults continue.

    Args:
        job: to end.
        what: stop, delete, or nothing.
    """

    def __init__(self, job: Job, what: str) -> None:
        self._job = job
        self.what = what
        self.is_over = not what
        if what:
            threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        while not self._job.has_begun and not self._job.is_over:
            time.sleep(0.1)
        time.sleep(REQUESTED_AFTER_S)
        command = [self.what, self._job.name]
        if self.what == "delete":
            command += ["--stop", "--yes"]
        while True:
            done = self._job.try_edl(*command)
            print(f"  edl {self.what} ended with {done.returncode}", flush=True)
            if done.returncode == 0 or self._job.is_over or not self._job.directory.exists():
                break
        self.is_over = True

    @property
    def is_deleted(self) -> bool:
        return self.what == "delete" and self.is_over and not self._job.directory.exists()


def _report(status: dict[str, Any], done: Counter[str], seconds: float) -> None:
    progress = status.get("progress", {})
    lost = {k: round(v) for k, v in progress.get("lost_s", {}).items() if v >= 0.5}
    print(
        f"  {done.total()} faults in {seconds:.0f} s: "
        + ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
    )
    print(
        f"  {status['state']}; {status.get('records_replayed', 0)} records computed again,"
        f" {status.get('preemptions', 0)} preemptions, {status.get('worker_failures', 0)} failures;"
        f" goodput {progress.get('goodput', 0):.0%}, worker seconds lost {lost}",
        flush=True,
    )


def _jobs(place: Path, chosen: argparse.Namespace) -> list[AuditedJob]:
    """The jobs of one round, in their order."""
    jobs = []
    for servers in chosen.servers:
        if chosen.model != "mnist":
            updates = [u for u in chosen.update if not servers or u != "allreduce"]
            jobs += [counting(place, u, servers, chosen.records, 3) for u in updates]
            jobs += [
                counting(place, u, servers, chosen.records, 3, table=True) for u in updates[:1]
            ]
        if chosen.model != "counting":
            jobs.append(mnist(place, servers, 20))
    return jobs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev chaos",
        description=chaos.__doc__,
        epilog="--platform kubernetes: pods, nodes and the API server instead; see its --help",
    )
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between faults, on average"
    )
    parser.add_argument("--model", choices=("all", "counting", "mnist"), default="all")
    parser.add_argument(
        "--servers",
        type=int,
        nargs="+",
        choices=range(MAX_SERVERS + 1),
        default=[0, 1, 2],
        help="parameter servers; of several numbers, some jobs have the one and some the other",
    )
    parser.add_argument(
        "--update",
        nargs="+",
        choices=UPDATES,
        default=["async", "sync"],
        help="of the counting model, likewise",
    )
    parser.add_argument(
        "--faults",
        nargs="+",
        metavar="KIND",
        choices=sorted({kind.name for kind in FAULTS}),
        help="only these kinds, such as 'master kill'; an unknown one lists all; default: all",
    )
    parser.add_argument(
        "--storm", type=int, default=0, help="so many faults 0.3 s apart, then a longer pause"
    )
    parser.add_argument(
        "--endings",
        nargs="+",
        choices=("finish", "stop", "delete"),
        default=["finish"],
        help="how jobs end; of several, in turn",
    )
    parser.add_argument(
        "--disks",
        action="store_true",
        help="checkpoints go to a small disk, which faults fill or forbid to write; needs root",
    )
    parser.add_argument("--records", type=int, default=40_009, help="of the counting model")
    parser.add_argument("--keep", action="store_true", help="keep the files of the jobs")
    return parser


def main() -> int:
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--platform", choices=("processes", "kubernetes"), default="processes")
    platform, rest = first.parse_known_args()
    if platform.platform == "kubernetes":
        from chaos import cluster_jobs

        return cluster_jobs.main(rest)
    chosen = _parser().parse_args(rest)
    kinds = [kind for kind in FAULTS if not chosen.faults or kind.name in chosen.faults]
    faults = schedule(chosen.seed, chosen.every, kinds, chosen.storm)
    endings = itertools.cycle(chosen.endings)
    place = Path(tempfile.mkdtemp(prefix="edl-chaos-"))
    sets_clocks = any(kind.action is SET_CLOCK for kind in kinds) and can_set_clocks()
    clock = Clock(place) if sets_clocks else None
    countdown = Countdown(chosen.minutes * 60)
    print(
        f"seed {chosen.seed}, {chosen.minutes:g} minutes, a fault every {chosen.every:g} s, {place}"
    )
    wrong: list[str] = []
    number = 0
    try:
        for kind in itertools.cycle(_jobs(place, chosen)):
            name = f"chaos-{chosen.seed}-{number}"
            ending = next(endings)
            request = "" if ending == "finish" else ending
            try:
                with small_disk(place / "disk", mount=chosen.disks):
                    wrong = run(kind, name, place / "home", faults, countdown, request, clock)
            except Exception:  # the files are kept for the developer
                wrong = [traceback.format_exc()]
            number += 1
            if wrong or countdown.left_s < SHORT_S:
                break
    finally:
        if wrong or chosen.keep:
            print(f"the jobs' files are in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"seed {chosen.seed}: {number} jobs, {'WRONG' if wrong else '0 lost, 0 repeated'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
