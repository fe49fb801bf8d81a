"""The timelines of the workers of jobs on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edl import codec
from edl.adapters.local.job_store import StoredJob
from edl.core.timeline import TimelineSpan
from edl.ports.job_backend import MasterUnreachable
from edl_runtime.files import open_regular
from edl_runtime.local import job_directory

if TYPE_CHECKING:
    from edl.adapters.job_service_client import JobServiceClient

Read = Callable[["JobServiceClient"], list[TimelineSpan]]


class LocalTimelines:
    """The ``JobTimelines`` of this machine.

    Args:
        find: one of its jobs by name; raises JOB_NOT_FOUND.
        call: asks the master at an address for the job of a name; raises MasterUnreachable.
    """

    def __init__(
        self,
        find: Callable[[str], StoredJob],
        call: Callable[[str, str, Read], list[TimelineSpan]],
    ) -> None:
        self._find = find
        self._call = call

    def read(self, name: str) -> Sequence[TimelineSpan]:
        stored = self._find(name)
        if stored.master is not None and stored.master_is_alive:
            with contextlib.suppress(MasterUnreachable):
                return self._call(stored.master.address, name, lambda it: it.timeline())
        return codec.decode_timeline(_lines(stored.path))


def _lines(directory: Path) -> Iterator[bytes]:
    """Yield the lines of both files, the older ones first."""
    for name in (job_directory.FORMER_TIMELINE, job_directory.TIMELINE):
        try:
            with open_regular(directory / name) as file:
                yield from file
        except OSError:
            continue
