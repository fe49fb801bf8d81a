"""All jobs of this machine, read again and again for the page of all jobs."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from edl.plugins.backends import ServedPage, StatusReport
from edl.plugins.errors import failure_of
from edl.plugins.job_status import UNREADABLE, Failure, error_fields
from edl.plugins.jobs import JobCatalog
from edl_proto.errors import EdlError, ErrorCode

_HISTORY = 90
"""The number of values in a sparkline: three minutes, at a refresh every two seconds."""

_REFRESHES_PER_OVER = 10
"""A job that is over may be resumed; it is read again at every tenth refresh."""


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job as it was at the last refresh.

    Attributes:
        rates: records per second at the last refreshes, oldest first.
    """

    report: StatusReport
    rates: Sequence[float]

    def to_dict(self) -> dict[str, Any]:
        """Return what the page shows; what is not known is None."""
        status = self.report.status
        eta_s = _finite(status.eta_s) if status.eta_s >= 0 and not status.state.is_over else None
        return {
            "job": status.job,
            "verb": status.verb.value,
            "state": status.state.value,
            "over": status.state.is_over,
            "done": _finite(status.fraction) if status.records_total else None,
            "records_per_s": _finite(status.records_per_s) or 0.0,
            "rates": [_finite(rate) or 0.0 for rate in self.rates],
            "eta_s": eta_s,
            "workers": status.at_work,
            "restarts": status.preemptions + status.worker_failures,
            "loss": _finite(status.loss),
            "seconds": _finite(status.seconds) or 0.0,
            "started_at": status.started_at,
            "error": None,
        }


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """A job whose record could not be read at the last refresh, and why."""

    name: str
    failure: Failure

    def to_dict(self) -> dict[str, Any]:
        """Return what the page shows, with the same keys as a ``FleetJob``."""
        return {
            "job": self.name,
            "verb": "",
            "state": UNREADABLE,
            "over": False,
            "done": None,
            "records_per_s": 0.0,
            "rates": [],
            "eta_s": None,
            "workers": 0,
            "restarts": 0,
            "loss": None,
            "seconds": 0.0,
            "started_at": "",
            "error": error_fields(self.failure),
        }


class Fleet:
    """The jobs of a catalog; safe for threads, and a context manager that ends pages it serves.

    Args:
        catalog: asked by one thread at a time.
    """

    def __init__(self, catalog: JobCatalog) -> None:
        self._catalog = catalog
        self._asking = threading.Lock()
        self._jobs: dict[str, FleetJob | UnreadableJob] = {}
        self._failed: EdlError | None = None
        self._refreshes = 0
        self._pages: dict[str, ServedPage] = {}
        self._served = ExitStack()
        # A page ends with the thread that has started its process; that of a request ends at once.
        self._starter = self._served.enter_context(
            ThreadPoolExecutor(1, thread_name_prefix="fleet-pages")
        )

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        with self._asking:
            self._served.close()

    @property
    def jobs(self) -> Sequence[FleetJob | UnreadableJob]:
        """The jobs at the last refresh, newest first.

        Raises:
            EdlError: at the last refresh, the jobs could not be listed.
        """
        if self._failed is not None:
            raise self._failed
        return list(self._jobs.values())

    @property
    def reports(self) -> Sequence[StatusReport]:
        """The reports that could be read at the last refresh at which the jobs could be listed."""
        return [job.report for job in self._jobs.values() if isinstance(job, FleetJob)]

    def refresh(self) -> None:
        """Read what the masters have recorded of their jobs.

        Raises:
            EdlError: the jobs cannot be listed.
        """
        with self._asking:
            try:
                names = self._catalog.names()
            except EdlError as error:
                self._failed = error
                raise
            read = ((name, self._read_job(name)) for name in names)
            self._jobs = {name: job for name, job in read if job is not None}
            self._refreshes += 1
            self._failed = None

    def _read_job(self, name: str) -> FleetJob | UnreadableJob | None:
        """Return a job as it is now; None if it was deleted meanwhile."""
        known = self._jobs.get(name)
        rates: deque[float] = deque(maxlen=_HISTORY)
        if isinstance(known, FleetJob):
            if known.report.is_over and self._refreshes % _REFRESHES_PER_OVER:
                return known
            rates.extend(known.rates)
        try:
            report = self._catalog.recorded_status(name)
        except EdlError as error:
            if error.code == ErrorCode.JOB_NOT_FOUND:
                return None
            return UnreadableJob(name, failure_of(error))
        if not report.is_over:
            rates.append(report.status.records_per_s)
        return FleetJob(report, rates)

    def page_link(self, name: str) -> str:
        """Return a link to the page of a job; that of a job that is over is served from now on.

        Raises:
            EdlError: JOB_NOT_FOUND, or the page cannot be served.
        """
        with self._asking:
            backend = self._catalog.find(name)
            report = backend.status(name, ask=False)
            if report.dashboard_url:
                return report.page_link()
            page = self._pages.get(name)
            if page is None or not page.is_served():
                opened = backend.serve_page(name, 0)
                page = self._starter.submit(self._served.enter_context, opened).result()
                self._pages[name] = page
            return page.url  # opens it in the same browser again and again


def _finite(value: float) -> float | None:
    """Return the number; None if it is not finite, as JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


@contextmanager
def repeat_in_thread(
    act: Callable[[], None], every_s: float, report: Callable[[Exception], object]
) -> Iterator[None]:
    """Act now, and again every so many seconds in a thread of its own, until the block ends.

    An error of the first act is raised; after a later one the next act follows as usual.

    Args:
        report: gets each error, but in a row the same one only once.
    """
    over = threading.Event()

    def run() -> None:
        reported = ""
        while not over.wait(every_s):
            try:
                act()
            except Exception as error:  # otherwise the page would look up to date
                if str(error) != reported:
                    report(error)
                reported = str(error)
            else:
                reported = ""

    thread = threading.Thread(target=run, name="fleet", daemon=True)
    act()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
