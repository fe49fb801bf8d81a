"""Commands of the user that survive the master: written before they are acknowledged."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from edl_master.adapters.job_directory import JobDirectory
from edl_master.core.events import Event, ScaleRequested, StopRequested


@dataclass(slots=True)
class RecordedRequests:
    """The stop and scale commands of a job, in ``requests.json`` of its directory.

    Attributes:
        directory: of the job.
    """

    directory: JobDirectory
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def record_stop(self, reason: str) -> None:
        """Have this and every later master stop the job.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; nothing is recorded.
        """
        self._record(stop={"reason": reason})

    def record_scale(self, minimum: int, maximum: int) -> None:
        """Have every later master want that many workers.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; nothing is recorded.
        """
        self._record(workers={"min": minimum, "max": maximum})

    def events(self, minimum: int, maximum: int) -> tuple[Event, ...]:
        """Return the requests that a new master must fulfil, as its predecessors acknowledged them.

        Args:
            minimum, maximum: workers that the job wants as it was restored.
        """
        found = self.directory.read_requests()
        events: list[Event] = []
        if (workers := found.get("workers")) is not None:
            wanted = int(workers["min"]), int(workers["max"])
            if wanted != (minimum, maximum):
                events.append(ScaleRequested(*wanted))
        if (stop := found.get("stop")) is not None:
            events.append(StopRequested(str(stop["reason"])))
        return tuple(events)

    def _record(self, **facts: Any) -> None:
        with self._lock:
            self.directory.write_requests({**self.directory.read_requests(), **facts})
