"""Commands of several clients at once, and those that cannot be carried out."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from edl_master.core.effects import Refused
from edl_master.core.events import ScaleRequested
from edl_master.core.gpus import GpuAssignment
from edl_master.core.settings import JobType
from edl_master.servicers.job import JobServicer
from edl_proto.errors import EdlError, ErrorCode
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
    service = JobServicer(job, anything, anything, anything, job, anything, anything)

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


def refusal(job: Any, workers: job_pb2.WorkersSpec) -> EdlError:
    anything: Any = None
    service = JobServicer(job, anything, anything, anything, anything, anything, anything)
    with pytest.raises(EdlError) as refused:
        service.Scale(job_pb2.ScaleRequest(workers=workers), anything)
    return refused.value


def test_a_running_job_gets_no_more_workers_than_gpus() -> None:
    anything: Any = None
    job: Any = Job()
    two = GpuAssignment(("GPU-a", "GPU-b"))
    service = JobServicer(job, anything, anything, anything, job, anything, anything, two)
    request = job_pb2.ScaleRequest(workers=job_pb2.WorkersSpec(min=1, max=3))
    with pytest.raises(EdlError, match="3 workers for 2 GPUs") as refused:
        service.Scale(request, anything)
    assert (refused.value.code, refused.value.where) == (ErrorCode.USAGE, "edl scale")
    assert (job.wanted, job.recorded) == (0, 0), "the job knows nothing of it"


def test_a_job_that_ends_is_not_asked_for_another_number() -> None:
    job = SimpleNamespace(handle=lambda event: Refused("the job is ending"))
    error = refusal(job, job_pb2.WorkersSpec(min=1, max=2))
    assert error.code == ErrorCode.JOB_OVER
    assert "the job is ending" in error.what
    assert "Ask for" not in error.remedy


def test_the_range_that_no_job_can_have_is_named_as_it_was_meant() -> None:
    """A request without a maximum asks for exactly its minimum."""
    error = refusal(None, job_pb2.WorkersSpec(min=1001))
    assert error.code == ErrorCode.USAGE
    assert "1001 to 1001 workers" in error.what
    assert "1 to 1000 workers" in error.remedy


@pytest.mark.parametrize(
    ("rate", "schedules", "words"),
    [
        (-1.0, (None,), "-1.0 is not a learning rate"),
        (math.nan, (None,), "nan is not a learning rate"),
        (0.1, (), "no model yet"),
        (0.1, (None, None), "2 optimizers"),
        (0.1, ("ExponentialDecay",), "the schedule ExponentialDecay"),
    ],
)
def test_a_learning_rate_that_cannot_be_set_is_refused(
    rate: float, schedules: tuple[str | None, ...], words: str
) -> None:
    anything: Any = None
    job: Any = SimpleNamespace(view=lambda: SimpleNamespace(type=JobType.TRAIN))
    service = JobServicer(job, anything, anything, anything, anything, anything, lambda: schedules)
    with pytest.raises(EdlError) as refused:
        service.SetLearningRate(job_pb2.SetLearningRateRequest(learning_rate=rate), anything)
    assert refused.value.code == ErrorCode.USAGE
    assert words in refused.value.what
    assert refused.value.remedy
