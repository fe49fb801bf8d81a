"""All jobs that this client can reach, whichever backend runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from edl.codec import error_of
from edl.core.problem import Problem
from edl.core.submission import Submission
from edl.core.suggestions import did_you_mean
from edl.ports.job_backend import JobBackend, StatusReport
from edl_proto.errors import EdlError, ErrorCode

_PATH = (
    "This is a path, and the command takes the name of a job, which edl list shows. A trained "
    "model is complete as it is: edl predict --trained-model DIR."
)


class JobCatalog:
    """A catalog of all backends' jobs; as a context manager, it closes the backends.

    Args:
        backends: one for each platform. A name is looked for in this order.
        problems: what is wrong with platforms that have no backend.
    """

    def __init__(
        self, backends: Sequence[JobBackend], problems: Mapping[str, Problem] | None = None
    ) -> None:
        self._backends = backends
        self._problems = problems or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def backend_for(self, job: Submission) -> JobBackend:
        """Return the backend that is to run a submission.

        Raises:
            EdlError: that of its platform does not work.
        """
        for backend in self._backends:
            if backend.platform == job.platform:
                return backend
        if problem := self._problems.get(job.platform):
            raise error_of(problem)
        raise ValueError(f"no backend for the platform {job.platform}")

    @property
    def location(self) -> str:
        """Where the state of all jobs is, for messages."""
        return ", ".join(dict.fromkeys(it.location for it in self._backends if it.location))

    def names(self) -> list[str]:
        """Return the names of all jobs, the newest first."""
        found = [entry for backend in self._backends for entry in backend.list()]
        return [it.name for it in sorted(found, key=lambda it: it.created_s, reverse=True)]

    def has(self, name: str) -> bool:
        """Return whether any backend has a job of this name."""
        return self._holder(name) is not None

    def find(self, name: str) -> JobBackend:
        """Return the backend that has a job. Raises: EdlError: JOB_NOT_FOUND."""
        if (backend := self._holder(name)) is not None:
            return backend
        raise EdlError(
            ErrorCode.JOB_NOT_FOUND,
            f"there is no job named {name}",
            where=self.location,
            remedy=_PATH
            if "/" in name
            else did_you_mean(name, self.names()) or "edl list shows all jobs.",
        )

    def recorded_status(self, name: str) -> StatusReport:
        """Return the recorded status of a job, without a call to its master.

        Raises:
            EdlError: JOB_NOT_FOUND.
        """
        return self.find(name).status(name, ask=False)

    def close(self) -> None:
        """Release connections to masters. Harmless when repeated."""
        for backend in self._backends:
            backend.close()

    def _holder(self, name: str) -> JobBackend | None:
        for backend in self._backends:
            try:
                backend.status(name, ask=False)
            except EdlError as error:
                if error.code == ErrorCode.JOB_NOT_FOUND:
                    continue
                # Its state is damaged, so the job exists; the caller's next call says so.
            return backend
        return None
