"""Faults of a cluster under counting jobs, which must count each record exactly once.

A cluster of two nodes is started for it, and ended; no other one is touched. Its faults and jobs
are those of tests/kubernetes. Each kind of fault is done once, in an order that the seed gives,
before kinds are drawn by weight. After its faults a job runs to its end, and its model shows how
often it has seen each record. As root; needs what ./dev cluster needs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from cluster.cluster import Cluster
from counting_job import CountingJob
from faults import FAULTS, Schedule

_HELD_RECORD_S = 0.02

EXAMPLE = """for example:
  ./dev chaos --platform kubernetes --minutes 12 --seed 7
  ./dev chaos --platform kubernetes --faults "node lose" "api-server stop"
"""


def parser() -> argparse.ArgumentParser:
    kinds = "\n".join(f"  {fault.name}" for fault in FAULTS)
    found = argparse.ArgumentParser(
        prog="./dev chaos --platform kubernetes",
        description=__doc__,
        epilog=f"kinds of faults:\n{kinds}\n\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--minutes", type=float, default=5.0, help="no new job begins after these (default: 5)"
    )
    found.add_argument(
        "--seed", type=int, default=1, help="decides on faults and victims (default: 1)"
    )
    found.add_argument(
        "--every",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="between two faults, on average (default: 5)",
    )
    found.add_argument(
        "--round",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="of faults under one job (default: 180)",
    )
    found.add_argument(
        "--records", type=int, default=20_011, help="of each job (default: 20011), seen twice"
    )
    found.add_argument(
        "--servers",
        type=int,
        nargs="+",
        default=[1, 0],
        metavar="N",
        help="parameter servers of one job after the other, in turn (default: 1 0)",
    )
    found.add_argument(
        "--faults",
        nargs="+",
        metavar="KIND",
        choices=[fault.name for fault in FAULTS],
        help="only these kinds (default: all)",
    )
    return found


def main(arguments: list[str]) -> int:
    chosen = parser().parse_args(arguments)
    random = Random(chosen.seed)
    faults = [fault for fault in FAULTS if not chosen.faults or fault.name in chosen.faults]
    schedule = Schedule(faults, random)
    end = time.monotonic() + chosen.minutes * 60
    number, wrong = 0, ""
    # Pods have a /tmp of their own.
    with (
        tempfile.TemporaryDirectory(prefix="edl-chaos-", dir="/var/tmp") as files,
        tempfile.TemporaryDirectory(prefix="edl-chaos-") as folder,
    ):
        cluster = Cluster.start(Path(folder) / "cluster", nodes=2)
        try:
            while not wrong and (number == 0 or time.monotonic() < end):
                job = CountingJob(
                    cluster,
                    f"chaos-{number}",
                    Path(files) / str(number),
                    records=chosen.records,
                    servers=chosen.servers[number % len(chosen.servers)],
                    record_s=_HELD_RECORD_S,
                )
                wrong = run(job, schedule, random, chosen.every, chosen.round)
                job.close()
                number += 1
        finally:
            cluster.end()
    if schedule.to_do:
        print(f"too short for: {', '.join(fault.name for fault in schedule.to_do)}")
    print(f"seed {chosen.seed}: {number} jobs, {wrong or '0 lost, 0 repeated'}")
    return 1 if wrong else 0


def run(
    job: CountingJob, schedule: Schedule, random: Random, every_s: float, round_s: float
) -> str:
    """One job from its start to the audit; what was wrong."""
    print(f"{job.namespace}: {job.records} records", flush=True)
    done = Counter[str]()
    try:
        job.wait_for_training()
        began = time.monotonic()
        schedule.begin_job()
        while time.monotonic() < began + round_s and not job.is_over:
            fault = schedule.draw()
            whom = fault.inject(job, random)
            if whom:
                schedule.note_done(fault)
            at = time.monotonic() - began
            print(f"  {at:6.1f} s  {fault.name}: {whom or 'no target'}", flush=True)
            done[fault.name] += bool(whom)
            time.sleep(random.expovariate(1 / every_s))
        job.release()
        job.check()
    except AssertionError as error:
        return f"WRONG: {error}"
    status = job.record()
    counts = ", ".join(f"{count} {what}" for what, count in sorted(done.items()) if count)
    print(f"  {done.total()} faults: {counts}")
    print(
        f"  exact; {status.get('records_replayed', 0)} records computed again,"
        f" {status.get('preemptions', 0)} preemptions, {status.get('worker_failures', 0)} failures"
    )
    return ""
