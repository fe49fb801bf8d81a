"""What a job on Kubernetes can be continued with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import ClusterJob
from edl_kubernetes.continuation import ClusterContinuation
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2


@pytest.mark.parametrize(
    ("stopped", "num_epochs", "code"),
    [(True, 3, None), (True, 2, ErrorCode.USAGE), (False, 3, ErrorCode.JOB_EXISTS)],
)
def test_a_stopped_job_gets_more_epochs(
    stopped: bool, num_epochs: int, code: ErrorCode.ValueType | None
) -> None:
    annotations = {objects.ANNOTATION_STOPPED: "edl stop"} if stopped else {}
    item = {"metadata": {"uid": "1", "annotations": annotations}, "spec": {"suspend": stopped}}
    spec = job_pb2.JobSpec(name="mine", type=job_pb2.TRAIN)
    spec.training.num_epochs = 2
    released = []

    def release(name: str, epochs: int) -> bool:
        released.append(epochs)
        raise LookupError("the start is not waited for")

    found = SimpleNamespace(
        read=lambda name: ClusterJob(name, item, {}, spec),
        pods=lambda name, role: [],
        release=release,
    )
    job = ClusterContinuation(cast(Any, None), cast(Any, found))
    with pytest.raises(LookupError if code is None else EdlError) as caught:
        job.resume("mine", num_epochs=num_epochs)
    assert released == ([] if code else [num_epochs])
    assert code is None or cast(EdlError, caught.value).code == code
