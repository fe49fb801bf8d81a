"""What differs between the platforms of this machine, such as processes and containers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from edl.adapters.local.instances import LocalInstance
from edl_proto.v1 import job_pb2


class LocalRuntime(Protocol):
    """The way in which the processes of a local job are started and found."""

    @property
    def platform(self) -> str:
        """The value of ``--platform``."""

    def master_command(self) -> Sequence[str]:
        """Return the command that starts a master; ``--job-dir DIR`` is appended to it."""

    def master(self, job_dir: Path, pid: int, start_time: int) -> LocalInstance:
        """Return the running master.

        Args:
            pid: as the master wrote it down, in its own process namespace.
        """

    def check(self, job_dir: Path) -> None:
        """Check that the job's processes can be ended. Raises: EdlError: ENGINE_UNAVAILABLE."""

    def workers(self, job_dir: Path) -> list[LocalInstance]:
        """Return the job's workers, as far as they are known; some may have ended."""

    def remove(self, job_dir: Path) -> None:
        """Remove everything of the job that is outside its directory. Harmless when repeated."""

    def admit_export(self, spec: job_pb2.JobSpec, jobs: Path) -> None:
        """Let the processes of an export see what it reads and writes.

        Args:
            spec: of the export; gets what is added.
            jobs: the folder of all jobs.

        Raises:
            EdlError: USAGE; the output is where they must not write.
        """

    def install_remedy(self, command: Sequence[str]) -> str:
        """Return what to do if the master's command does not find ``edl_master``."""
