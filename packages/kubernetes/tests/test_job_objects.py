"""Reading and changing Jobs that other processes change at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edl.core.options.kubernetes import ClusterChoice
from edl_kubernetes.chosen_cluster import ChosenCluster, ClusterConnection
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import Listing
from edl_kubernetes.cluster.api_errors import ApiError
from edl_kubernetes.job_objects import JobObjects
from edl_proto.errors import EdlError

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
        for name, value in changes["metadata"]["annotations"].items():
            if value is None:
                self.annotations.pop(name, None)
            else:
                self.annotations[name] = value
        self.suspend = changes["spec"]["suspend"]


@pytest.mark.parametrize("other_resumes", [False, True])
def test_one_of_several_callers_resumes_a_stopped_job(other_resumes: bool) -> None:
    api = Api(lambda found: found.clear() if other_resumes else found.update(controller="was here"))
    cluster = ChosenCluster(ClusterChoice())
    cluster._connection = ClusterConnection(api, "here", "team")
    assert JobObjects(cluster).release("digits", num_epochs=5) is not other_resumes
    assert api.suspend is other_resumes
    assert objects.ANNOTATION_STOPPED not in api.annotations
    assert (objects.ANNOTATION_EPOCHS in api.annotations) is not other_resumes


class Events(Api):
    """The API of a cluster that has events of a former Job of the name, too."""

    def __init__(self) -> None:
        Api.__init__(self, lambda found: None)

    def list(self, path: str, selector: str = "", fields: str = "") -> Listing:
        assert path == "/api/v1/namespaces/team/events"
        wanted = dict(field.split("=") for field in fields.split(","))
        assert wanted.pop("involvedObject.kind") == "Job"
        assert wanted.pop("involvedObject.name") == "edl-digits"
        uid = wanted.pop("involvedObject.uid", "")
        said = {"0": "exceeded quota", "1": "Created pod"}
        return Listing([{"message": said[it]} for it in said if uid in ("", it)], "1")


def test_what_was_said_of_a_former_job_is_left_out() -> None:
    cluster = ChosenCluster(ClusterChoice())
    cluster._connection = ClusterConnection(Events(), "here", "team")
    found = JobObjects(cluster)
    assert found.events("digits", "Job") == ["exceeded quota", "Created pod"], "none was read"
    found.read("digits", needs_spec=False)
    assert found.events("digits", "Job") == ["Created pod"]


class EmptyNamespace:
    """The API of a cluster that lists no jobs in any namespace, and answers so to who asks for one.

    Args:
        status: of the answer; 200: the namespace exists.
    """

    def __init__(self, status: int) -> None:
        self._status = status

    def list(self, path: str, selector: str) -> Listing:
        return Listing([], "1")

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/team"
        if self._status != 200:
            raise ApiError(self._status, "", "no")
        return {}


@pytest.mark.parametrize("status", [200, 403])
def test_a_namespace_that_the_user_may_not_read_has_an_empty_list(status: int) -> None:
    cluster = ChosenCluster(ClusterChoice())
    cluster._connection = ClusterConnection(EmptyNamespace(status), "here", "team")
    assert JobObjects(cluster).jobs() == []


def test_a_namespace_that_does_not_exist_has_no_list_of_jobs() -> None:
    cluster = ChosenCluster(ClusterChoice())
    cluster._connection = ClusterConnection(EmptyNamespace(404), "here", "team")
    with pytest.raises(EdlError, match="there is no namespace team"):
        JobObjects(cluster).jobs()


def test_a_job_is_found_in_a_namespace_of_any_length_and_never_outside_of_one() -> None:
    objects_of = JobObjects(ChosenCluster(ClusterChoice()))
    longest = "n" * 63
    assert objects_of.locate(f"{longest}/digits") == (longest, "digits")
    for namespace in ("n" * 64, "..", "a/b", "%2e%2e", "a.b"):
        with pytest.raises(EdlError, match="there is no job named"):
            objects_of.locate(f"{namespace}/digits")
