"""What the page of all jobs is told about them."""

from __future__ import annotations

import json
import math
import threading

import pytest

from edl.core.job_status import JobState, JobStatus
from edl.core.options import Verb
from edl.ports.job_backend import StatusReport
from edl_proto.errors import EdlError, ErrorCode
from edl_watch.fleet import FleetJob, repeat_in_thread


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_does_not_spoil_the_list(value: float) -> None:
    status = JobStatus(
        *("job", Verb.TRAIN, JobState.RUNNING),
        records_total=10,
        records_per_s=value,
        eta_s=value,
        loss=value,
        seconds=value,
    )
    report = StatusReport(status, False, "", 0.0, "", lambda: "", {}, {})
    job = FleetJob(report, [1.0, value])
    told = json.loads(json.dumps(job.to_dict(), allow_nan=False))
    assert (told["loss"], told["eta_s"]) == (None, None)
    assert (told["records_per_s"], told["rates"], told["seconds"]) == (0.0, [1.0, 0.0], 0.0)


@pytest.mark.parametrize(
    "full", [OSError("disk full"), EdlError(ErrorCode.SYSTEM, "disk full"), ValueError("defect")]
)
def test_the_page_goes_on_after_an_error_and_says_so_once(full: Exception) -> None:
    acts, recovered, said = 0, threading.Event(), list[Exception]()
    other = EdlError(ErrorCode.SYSTEM, "Prometheus has ended with code 1")

    def act() -> None:
        nonlocal acts
        acts += 1
        if acts >= 9:
            recovered.set()
        elif acts not in (1, 7):
            raise other if acts == 5 else full

    with repeat_in_thread(act, 0.001, said.append):
        assert recovered.wait(200)
    assert said == [full, other, full, full]
