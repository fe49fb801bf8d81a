"""Jobs whose metrics are scraped each second beside the same jobs without any: records per second.

The small model has short steps, of which each is measured: a larger one hides more.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.jobs import UNMEASURED, trained, written
from bench.measure import paired
from bench.mnist_local import MODEL
from edl_testing.scraping import scrape

RUNS, TARGET = 5, 0.99
EVERY_S = 1.0
CLICKS = "--model-zoo", "bench/models", "--model-def", "clicks"


@contextlib.contextmanager
def _scraped(jobs: Path) -> Iterator[list[int]]:
    """All jobs of a folder are asked for their metrics; gives octets of the answers."""
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


def measures() -> list[dict[str, Any]]:
    """Measured and scraped beside neither, in pairs."""
    found = []
    for name, tool, records, batch, epochs, options in (
        ("mnist", "digits", 12_800, 64, 4, MODEL),
        ("clicks", "clicks", 100_000, 512, 6, CLICKS),
    ):
        with tempfile.TemporaryDirectory() as place:
            work = Path(place)
            data = written(work, tool, records)
            job = partial(
                trained,
                *(work, *options),
                data=f"{data}/train/*.recordio",
                workers=2,
                batch=batch,
                epochs=epochs,
                records=records,
            )

            def scraped(work: Path = work, job: partial[float] = job) -> float:
                with _scraped(work / "home" / "jobs") as answers:
                    rate = job()
                assert answers, "nobody was asked"
                return rate

            found.append(
                paired(
                    f"{name}, edl train, 2 workers, with metrics",
                    "records/s",
                    scraped,
                    "without",
                    partial(job, edl=UNMEASURED),
                    runs=RUNS,
                    target=TARGET,
                ).to_json()
            )
    return found
