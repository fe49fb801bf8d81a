"""What a job's objects in the cluster say."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.job_status import JobState
from edl.render.job_text import status_lines
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import ClusterJob, decode_spec
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2


def job(*, suspend: bool, record: str = "{}", **annotations: str) -> ClusterJob:
    item: dict[str, Any] = {"metadata": {"annotations": annotations}, "spec": {"suspend": suspend}}
    return ClusterJob("digits", item, {objects.STATUS_KEY: record}, job_pb2.JobSpec())


def test_a_suspended_job_says_that_it_waits() -> None:
    status = job(suspend=True).status()
    assert not status.state.is_over
    assert "  waiting: its Job is suspended until a queue, or a person, releases it" in (
        status_lines(status)
    )


@pytest.mark.parametrize(
    ("waits", "state"),
    [
        (job(suspend=False, record='{"state": "RUNNING"}'), JobState.RUNNING),
        (job(suspend=True, record='{"state": "SUCCEEDED"}'), JobState.SUCCEEDED),
        (job(suspend=True, **{objects.ANNOTATION_STOPPED: "enough"}), JobState.CANCELLED),
    ],
)
def test_a_job_that_runs_or_is_over_waits_for_nothing(waits: ClusterJob, state: JobState) -> None:
    status = waits.status()
    assert (status.state, status.pending) == (state, "")


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ({}, "its Secret was deleted"),
        ({"data": {"other": ""}}, "its Secret has no spec.json"),
        ({"data": {objects.SPEC_KEY: "e30nCg=="}}, "Failed to load JSON"),
    ],
)
def test_a_description_that_cannot_be_read_says_why(secret: dict[str, Any], reason: str) -> None:
    with pytest.raises(EdlError) as caught:
        decode_spec(secret, "digits")
    assert reason in caught.value.what
    assert caught.value.remedy == "Delete the job: edl delete digits --stop --yes"
