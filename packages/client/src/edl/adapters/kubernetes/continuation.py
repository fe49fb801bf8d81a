"""What can be continued of a job on Kubernetes."""

from __future__ import annotations

from edl.adapters.kubernetes.job_objects import JobObjects
from edl.adapters.kubernetes.session import ClusterSession
from edl.adapters.kubernetes.start import JobStart
from edl.core.job_status import JobState, JobStatus
from edl_proto.errors import EdlError, ErrorCode

_START_S = 600.0


class ClusterContinuation:
    """Takes up jobs that ``edl stop --now`` has stopped; see ``JobContinuation``."""

    def __init__(self, session: ClusterSession, job_objects: JobObjects) -> None:
        self._session = session
        self._objects = job_objects

    def next_steps(self, status: JobStatus) -> str:
        """Only what was stopped with ``--now`` can be resumed, which leaves no final status."""
        return f"edl resume {status.job} starts it again." if status.state is JobState.LOST else ""

    def resume(self, name: str) -> bool:
        job = self._objects.read(name)
        if not job.status().state.is_over:
            return False
        if self._objects.release(name):
            JobStart(self._session, self._objects, name, _START_S).wait()
            return True
        raise EdlError(
            ErrorCode.JOB_OVER,
            f"{name} is over ({job.status().state.words}); on Kubernetes, only a job that"
            " edl stop --now has stopped can be resumed",
            where=self._objects.location(name),
            remedy="Train on with a new job: --init-from takes a trained model.",
        )

    def export(self, name: str, output: str = "") -> str:
        self._objects.check(name)
        raise EdlError(
            ErrorCode.USAGE,
            f"the model of {name} cannot be exported before the job succeeds",
            where=self._objects.location(name),
            remedy="Jobs on Kubernetes write their model at the end; --checkpoint-dir keeps copies"
            " of the state on the way.",
        )
