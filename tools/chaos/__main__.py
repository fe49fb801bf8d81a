from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chaos
from chaos.audits import AuditedJob, counting, missing_files, mnist
from chaos.faults import MOST_SERVERS, Fault, schedule
from chaos.job import Job

SHORT_S = 30.0
"""A job that would be left undisturbed so soon is not begun."""
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
    for fault in faults:
        if not fault.concerns(job):
            continue
        at = time.monotonic() + fault.after_s
        while time.monotonic() < at and countdown.left_s > 0 and not job.is_over:
            time.sleep(0.05)
        if job.is_over or countdown.left_s <= 0:
            return done
        targets = fault.targets(job)
        pids = f"pid {', '.join(map(str, targets))}" if targets else "nobody there"
        print(f"  {time.monotonic() - began:6.1f} s  {fault.describe(job)} ({pids})", flush=True)
        if targets:
            fault.inject(job, targets)
            done[fault.kind.name] += 1
    return done


def run(
    kind: AuditedJob, name: str, home: Path, faults: Iterator[Fault], countdown: Countdown
) -> list[str]:
    """One job from start to audit.

    Returns:
        What was wrong.
    """
    output = home.parent / f"{name}-model"
    began = time.monotonic()
    print(f"{name}: {kind.title}", flush=True)
    job = Job(home, name, [*kind.arguments, "--output", str(output)], kind.servers)
    try:
        done = disturb(job, faults, countdown)
        undisturbed_since = time.monotonic()
        while not job.is_over:
            if time.monotonic() - undisturbed_since > END_S:
                return [f"the job does not end: {json.dumps(job.status())[:2000]}"]
            time.sleep(0.2)
        status = job.status()
        _report(status, done, time.monotonic() - began)
        if status["state"] != "SUCCEEDED":
            return [f"the job ended {status['state']}: {json.dumps(status.get('error'))}"]
        if missing := missing_files(output):
            return [f"the trained model lacks {' and '.join(missing)}"]
        return kind.audit(output, status)
    finally:
        job.close()


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
            jobs += [counting(place, u, servers, chosen.records, 3) for u in chosen.update]
        if chosen.model != "counting":
            jobs.append(mnist(place, servers, 20))
    return jobs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=chaos.__doc__)
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
        choices=range(MOST_SERVERS + 1),
        default=[0, 1, 2],
        help="parameter servers; of several numbers, some jobs have the one and some the other",
    )
    parser.add_argument(
        "--update",
        nargs="+",
        choices=("async", "sync"),
        default=["async", "sync"],
        help="of the counting model, likewise",
    )
    parser.add_argument("--records", type=int, default=40_009, help="of the counting model")
    parser.add_argument("--keep", action="store_true", help="keep the files of the jobs")
    return parser


def main() -> int:
    chosen = _parser().parse_args()
    faults = schedule(chosen.seed, chosen.every)
    place = Path(tempfile.mkdtemp(prefix="edl-chaos-"))
    countdown = Countdown(chosen.minutes * 60)
    print(
        f"seed {chosen.seed}, {chosen.minutes:g} minutes, a fault every {chosen.every:g} s, {place}"
    )
    wrong: list[str] = []
    number = 0
    try:
        for kind in itertools.cycle(_jobs(place, chosen)):
            name = f"chaos-{chosen.seed}-{number}"
            try:
                wrong = run(kind, name, place / "home", faults, countdown)
            except Exception:  # then somebody will want to see the files
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
