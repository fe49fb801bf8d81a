"""What the page of all jobs is told about them."""

from __future__ import annotations

import json
import math

import pytest

from edl.core.job_backend import StatusReport
from edl.core.job_status import JobState, JobStatus
from edl.core.options import Verb
from edl.use_cases.fleet import FleetJob


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_spoils_the_list_for_nobody(value: float) -> None:
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
