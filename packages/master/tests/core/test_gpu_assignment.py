"""Which worker has which GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from joined_job import CONTEXT, DATA, SETTINGS, join_worker

from edl_master.core.gpus import NO_GPUS, GpuAssignment
from edl_master.core.identifiers import WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.reporting.status_codec import status_to

TWO = ("GPU-a", "GPU-b")


def test_each_worker_has_one_of_its_own() -> None:
    assignment = GpuAssignment(TWO)
    assert [assignment.gpu_of(WorkerId(number)) for number in range(2)] == ["GPU-a", "GPU-b"]
    assert assignment.find_fault(2) == ""
    assert "3 workers for 2 GPUs" in assignment.find_fault(3)
    assert "2 workers for 1 GPU" in GpuAssignment(("0",)).find_fault(2)


def test_workers_share_them_where_the_user_says_so() -> None:
    assignment = GpuAssignment(TWO, shared=True)
    gpus = [assignment.gpu_of(WorkerId(number)) for number in range(5)]
    assert gpus == ["GPU-a", "GPU-b", "GPU-a", "GPU-b", "GPU-a"]
    assert assignment.find_fault(5) == ""


@pytest.mark.parametrize("workers", [1, 1000])
def test_without_gpus_any_number_of_workers_trains(workers: int) -> None:
    assert NO_GPUS.find_fault(workers) == ""
    assert NO_GPUS.gpu_of(WorkerId(workers - 1)) == ""


def test_a_status_says_which_worker_has_which() -> None:
    view = join_worker(JobStateMachine(SETTINGS, DATA)).view(0.0)
    assert [worker.gpu for worker in status_to(view, CONTEXT).workers] == [""]
    context = replace(CONTEXT, gpus=GpuAssignment(TWO))
    assert [worker.gpu for worker in status_to(view, context).workers] == ["GPU-a"]
