"""Commands of the user that survive the master: written before they are acknowledged."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from edl_master.adapters.job_directory import JobDirectory
from edl_master.core.events import (
    Event,
    LearningRateRequested,
    ScaleRequested,
    StopRequested,
)


@dataclass(slots=True)
class RecordedRequests:
    """The commands that change a running job, in ``requests.json`` of its directory.

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

    def record_learning_rate(self, rate: float, number: int) -> None:
        """Have every later master set this rate, unless its snapshot has that request already.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; nothing is recorded.
        """
        self._record(learning_rate={"rate": rate, "number": number})

    def events(self, minimum: int, maximum: int, requested_rates: int) -> tuple[Event, ...]:
        """Return the requests that a new master must fulfil, as its predecessors acknowledged them.

        Args:
            minimum, maximum: workers that the job wants as it was restored.
            requested_rates: how many learning rates were requested as it was restored.
        """
        found = self.directory.read_requests()
        events: list[Event] = []
        if (workers := found.get("workers")) is not None:
            wanted = int(workers["min"]), int(workers["max"])
            if wanted != (minimum, maximum):
                events.append(ScaleRequested(*wanted))
        if (wanted_rate := found.get("learning_rate")) is not None:
            rate, number = float(wanted_rate["rate"]), int(wanted_rate["number"])
            if number > requested_rates:
                events.append(LearningRateRequested(rate, number))
        if (stop := found.get("stop")) is not None:
            events.append(StopRequested(str(stop["reason"])))
        return tuple(events)

    def _record(self, **facts: Any) -> None:
        with self._lock:
            self.directory.write_requests({**self.directory.read_requests(), **facts})
