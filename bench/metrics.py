"""What metrics, timeline and traces cost: jobs with one of them next to jobs without it.

The small model has short steps, of which each is measured: a larger one hides more.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.jobs import EDL, UNMEASURED, UNTIMED
from bench.measure import compare
from bench.small_jobs import SmallJob, small_jobs
from edl_testing.scrape import scrape

RUNS, TARGET = 5, 0.99
EVERY_S = 1.0


@contextlib.contextmanager
def _scrape(jobs: Path) -> Iterator[list[int]]:
    """Ask all jobs of a folder for their metrics; yield the sizes of the answers in bytes."""
    over = threading.Event()
    answers: list[int] = []

    def ask() -> None:
        while not over.wait(EVERY_S):
            for job in jobs.glob("*"):
                with contextlib.suppress(OSError):  # it has no page yet, or no more
                    answers.append(len(scrape(job)))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield answers
    finally:
        over.set()
        asking.join()


@contextlib.contextmanager
def _collector() -> Iterator[tuple[str, list[int]]]:
    """The address of a collector of spans, and the octets that it has been sent."""
    sent: list[int] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", sent
        finally:
            server.shutdown()
            serving.join()


def _run_scraped(job: SmallJob) -> float:
    with _scrape(job.work / "home" / "jobs") as answers:
        rate = job.run()
    assert answers, "no job was asked"
    return rate


def _run_traced(job: SmallJob) -> float:
    with _collector() as (address, sent):
        rate = job.run(edl=("env", f"OTEL_EXPORTER_OTLP_ENDPOINT={address}", *EDL))
    assert sent, "no span was sent"
    return rate


def measures() -> list[dict[str, Any]]:
    """Run jobs with and without metrics, a timeline and traces, in pairs."""
    found = []
    for job in small_jobs():
        for what, ours, theirs in (
            ("metrics", partial(_run_scraped, job), partial(job.run, edl=UNMEASURED)),
            ("a timeline", job.run, partial(job.run, edl=UNTIMED)),
            ("traces", partial(_run_traced, job), job.run),
        ):
            found.append(
                compare(
                    f"{job.name}, edl train, 2 workers, with {what}",
                    "records/s",
                    ours,
                    "without",
                    theirs,
                    runs=RUNS,
                    target=TARGET,
                ).to_json()
            )
    return found
