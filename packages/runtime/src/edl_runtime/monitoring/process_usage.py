"""The processor time and memory that this process uses."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The usage of one process, or of several together.

    Attributes:
        cpu_s: processor time so far.
        resident_nbytes: memory in use now.
    """

    cpu_s: float
    resident_nbytes: int

    def __add__(self, other: ProcessUsage) -> ProcessUsage:
        """Return the usage of both together."""
        return ProcessUsage(self.cpu_s + other.cpu_s, self.resident_nbytes + other.resident_nbytes)


def usage_of_this_process() -> ProcessUsage:
    """Return the usage of all threads; memory is 0 on systems other than Linux."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:
        pages = 0
    return ProcessUsage(time.process_time(), pages * os.sysconf("SC_PAGE_SIZE"))
