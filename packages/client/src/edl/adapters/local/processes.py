"""Jobs as processes of this machine (``--platform processes``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edl.adapters.local.instances import LocalInstance
from edl.adapters.local.job_processes import recorded_workers
from edl.adapters.local.job_store import JobStore, submission_time
from edl.adapters.local.jobs import LocalJobBackend
from edl.adapters.local.launcher import master_command
from edl.adapters.local.placement import LocalPlacement
from edl.core.platforms import PROCESSES
from edl.core.submission import Submission
from edl.job_spec import encode_spec
from edl_proto.v1 import job_pb2
from edl_runtime.local import process_identity


class ProcessRuntime:
    """Master and workers are processes, each with its own session."""

    platform = PROCESSES.name

    def master_command(self) -> Sequence[str]:
        return master_command()

    def master(self, job_dir: Path, pid: int, start_time: int) -> LocalInstance:
        return process_identity.Process(pid, start_time)

    def check(self, job_dir: Path) -> None:
        """Check nothing: processes need no engine."""

    def workers(self, job_dir: Path) -> list[LocalInstance]:
        return recorded_workers(job_dir)

    def remove(self, job_dir: Path) -> None:
        """Remove nothing: processes leave nothing outside the job's directory."""

    def admit_export(self, spec: job_pb2.JobSpec, jobs: Path) -> None:
        """Add nothing: processes see the same files as the user."""

    def install_remedy(self, command: Sequence[str]) -> str:
        return f"Install it where {command[0]} finds it: pip install 'edl-client[local]'"


class ProcessPlacement(LocalPlacement):
    """Processes see the same files as the user: every submission fits."""

    def resolve(self, job: Submission, environ: Mapping[str, str]) -> Submission:
        return job

    def provide_image(
        self,
        job: Submission,
        image: str,
        on_pull: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> None:
        """Do nothing: no process runs in the image, and the trained model only names it."""


def local_processes(
    root: Path | None = None, runtime: ProcessRuntime | None = None
) -> LocalJobBackend:
    """Return the backend for processes.

    Args:
        root: directory of all jobs; by default below ``$EDL_HOME``.
        runtime: of a platform that starts its processes in another way.
    """
    runtime = runtime or ProcessRuntime()
    store = JobStore(root, runtime)

    def encode(job: Submission) -> job_pb2.JobSpec:
        return encode_spec(job, str(store.path(job.name).absolute()), submission_time())

    return LocalJobBackend(store, runtime, ProcessPlacement(encode), encode)
