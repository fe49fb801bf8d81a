"""Commands of several clients at once."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from edl_master.core.events import ScaleRequested
from edl_master.servicers.job import JobServicer
from edl_proto.v1 import job_pb2


class Job:
    """A job that does what it is told, and what is recorded of it; the first record is slow."""

    def __init__(self) -> None:
        self.wanted = 0
        self.recorded = 0
        self.first = threading.Event()
        self.second = threading.Event()

    def handle(self, event: ScaleRequested) -> None:
        self.wanted = event.minimum

    def view(self) -> Any:
        return SimpleNamespace(min_workers=self.wanted, max_workers=self.wanted)

    def record_scale(self, minimum: int, maximum: int) -> None:
        if not self.first.is_set():
            self.first.set()
            self.second.wait(0.5)
        self.recorded = minimum
        if minimum == 2:
            self.second.set()


def test_the_number_that_the_job_has_is_the_one_that_is_recorded() -> None:
    """Otherwise the next master would go back to the number before it."""
    job: Any = Job()
    anything: Any = None
    service = JobServicer(job, anything, anything, anything, job, anything)

    def scale(workers: int) -> None:
        request = job_pb2.ScaleRequest(workers=job_pb2.WorkersSpec(min=workers, max=workers))
        service.Scale(request, anything)

    calls = [threading.Thread(target=scale, args=(number,)) for number in (1, 2)]
    calls[0].start()
    assert job.first.wait(60)
    calls[1].start()
    for call in calls:
        call.join()
    assert job.recorded == job.wanted == 2
