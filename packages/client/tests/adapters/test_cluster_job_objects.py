"""Changes to a Job that somebody else changes at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edl.adapters.kubernetes.job_objects import JobObjects
from edl.adapters.kubernetes.session import ClusterConnection, ClusterSession
from edl.core.cluster.choice import ClusterChoice
from edl_proto.kubernetes import objects
from edl_proto.kubernetes.api_errors import ApiError

JOB = "/apis/batch/v1/namespaces/team/jobs/edl-digits"


class Api:
    """The API of a cluster with the stopped job ``digits``.

    Args:
        meanwhile: changes the Job's annotations once, between the first reading and the change.
    """

    def __init__(self, meanwhile: Callable[[dict[str, str]], object]) -> None:
        self.annotations = {objects.ANNOTATION_STOPPED: "edl stop"}
        self.suspend, self.version = True, 1
        self._meanwhile: Callable[[dict[str, str]], object] | None = meanwhile

    def get(self, path: str) -> dict[str, Any]:
        if path != JOB:
            raise ApiError(404, "NotFound", path)
        metadata = {"name": "edl-digits", "uid": "1", "resourceVersion": str(self.version)}
        labels = objects.labels("digits", objects.MASTER)
        annotations = {"annotations": dict(self.annotations), "labels": labels}
        return {"metadata": metadata | annotations, "spec": {"suspend": self.suspend}}

    def patch(self, path: str, changes: dict[str, Any]) -> None:
        assert path == JOB
        if self._meanwhile is not None:
            self._meanwhile(self.annotations)
            self._meanwhile, self.version = None, self.version + 1
        if changes["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "the object has been modified")
        for name in changes["metadata"]["annotations"]:
            self.annotations.pop(name, None)
        self.suspend = changes["spec"]["suspend"]


@pytest.mark.parametrize("other_resumes", [False, True])
def test_one_of_several_callers_resumes_a_stopped_job(other_resumes: bool) -> None:
    api = Api(lambda found: found.clear() if other_resumes else found.update(controller="was here"))
    session = ClusterSession(ClusterChoice())
    session._connection = ClusterConnection(api, "here", "team")
    assert JobObjects(session).release("digits") is not other_resumes
    assert api.suspend is other_resumes
    assert objects.ANNOTATION_STOPPED not in api.annotations
