"""All jobs of this machine at a glance, looked at again and again."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from edl.core.job_backend import StatusReport
from edl.use_cases.job_catalog import JobCatalog
from edl_proto.errors import EdlError

_HISTORY = 90
"""Figures of a sparkline: three minutes, at a look every two seconds."""

_LOOKS_PER_OVER = 10
"""A job that is over may be resumed; it is looked at again with every tenth look."""


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job as it was at the last look.

    Attributes:
        rates: records per second at the latest looks, oldest first.
    """

    report: StatusReport
    rates: Sequence[float]

    def to_dict(self) -> dict[str, Any]:
        """For the page; what is not known is None."""
        status = self.report.status
        eta_s = status.eta_s if status.eta_s >= 0 and not status.state.is_over else None
        return {
            "job": status.job,
            "verb": status.verb.value,
            "state": status.state.value,
            "over": status.state.is_over,
            "done": status.fraction if status.records_total else None,
            "records_per_s": status.records_per_s,
            "rates": list(self.rates),
            "eta_s": eta_s,
            "workers": status.at_work,
            "restarts": status.preemptions + status.worker_failures,
            "loss": status.loss if math.isfinite(status.loss) else None,
            "seconds": status.seconds,
            "started_at": status.started_at,
        }


class Fleet:
    """The jobs of a catalog; safe for threads, and a context manager that ends pages it serves.

    Args:
        catalog: asked by one thread at a time.
    """

    def __init__(self, catalog: JobCatalog) -> None:
        self._catalog = catalog
        self._asking = threading.Lock()
        self._jobs: dict[str, FleetJob] = {}
        self._looks = 0
        self._pages: dict[str, str] = {}
        self._served = ExitStack()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        with self._asking:
            self._served.close()

    @property
    def jobs(self) -> Sequence[FleetJob]:
        """The jobs at the last look, newest first."""
        return list(self._jobs.values())

    def look(self) -> None:
        """Read what the masters have recorded of their jobs. Damaged jobs are left out."""
        with self._asking:
            found = {}
            for name in self._catalog.names():
                known = self._jobs.get(name)
                if known and known.report.is_over and self._looks % _LOOKS_PER_OVER:
                    found[name] = known
                    continue
                try:
                    report = self._catalog.recorded(name)
                except EdlError:
                    continue  # deleted meanwhile, or damaged: edl list says so
                rates = deque(known.rates if known else (), maxlen=_HISTORY)
                if not report.is_over:
                    rates.append(report.status.records_per_s)
                found[name] = FleetJob(report, rates)
            self._looks += 1
            self._jobs = found

    def page_link(self, name: str) -> str:
        """A link to the page of a job; that of a job that is over is served from now on.

        Raises:
            EdlError: JOB_NOT_FOUND, or the page cannot be served.
        """
        with self._asking:
            backend = self._catalog.find(name)
            report = backend.status(name, ask=False)
            if report.dashboard_url:
                return report.page_link()
            if name not in self._pages:
                page = self._served.enter_context(backend.serve_page(name, 0))
                self._pages[name] = page.url  # opens it in the same browser again and again
            return self._pages[name]


@contextmanager
def repeated(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Act now, and again every so many seconds in a thread of its own, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            act()

    thread = threading.Thread(target=run, name="fleet", daemon=True)
    act()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
