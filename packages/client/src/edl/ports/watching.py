"""The ports to what people watch jobs with: pages, metrics and traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from edl.ports.job_backend import StatusReport


class FleetPage(Protocol):
    """A page of all jobs that is being served."""

    def link(self) -> str:
        """Return a link that opens the page once."""


class MetricsStore(Protocol):
    """A server that collects and keeps the metrics of jobs."""

    url: str

    def follow_jobs(self, reports: Iterable[StatusReport]) -> None:
        """Read the metrics of these jobs from now on."""


class TraceFiles(Protocol):
    """Files with what each worker did when."""

    def check_trace(self, place: str, job: str) -> None:
        """Check that a trace can be written. Raises: EdlError, Problem."""

    def write_trace(self, path: Path, trace: Mapping[str, Any]) -> None:
        """Write a trace, whole or not at all. Raises: EdlError."""
