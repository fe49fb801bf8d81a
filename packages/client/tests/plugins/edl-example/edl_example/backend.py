"""The platform ``nice``: processes of this machine that leave the processor to others."""

from __future__ import annotations

from collections.abc import Sequence

from edl.plugins.backends import JobBackend, ProcessRuntime, local_processes


class NiceRuntime(ProcessRuntime):
    """Starts masters, and with them their workers, with a low priority."""

    platform = "nice"

    def master_command(self) -> Sequence[str]:
        return ("nice", "-n", "5", *super().master_command())


def nice_jobs() -> JobBackend:
    """Return the backend of the platform."""
    return local_processes(runtime=NiceRuntime())
