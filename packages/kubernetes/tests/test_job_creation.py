"""The creation of a job's objects while the API server comes and goes: all of them, or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from fake_cluster_api import Api, Happens, away, fails

from edl.core.options.kubernetes import ClusterChoice
from edl_kubernetes import job_creation, outages, owned_objects
from edl_kubernetes.chosen_cluster import ChosenCluster, ClusterConnection
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.job_creation import JobCreation
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.timestamps import rfc3339

JOB = "/apis/batch/v1/namespaces/team/jobs/edl-digits"
SECRET = "/api/v1/namespaces/team/secrets/edl-digits"
REMOVAL = "edl delete digits --stop --yes --context here --namespace team"


def retry_for(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (job_creation, owned_objects):
        monkeypatch.setattr(module, "RETRY_S", seconds)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    retry_for(0.05, monkeypatch)
    monkeypatch.setattr(outages, "POLL_S", 0.001)
    return Api()


def creation(
    api: Api, owned: Callable[[], Iterable[Any]] | None = None, name: str = "digits"
) -> JobCreation:
    cluster = ChosenCluster(ClusterChoice())
    cluster._connection = ClusterConnection(api, "here", "team", "here")
    named = {"name": f"edl-{name}", "namespace": "team"}
    own = {"kind": "Job", "spec": {"suspend": True}}
    own["metadata"] = {**named, "labels": objects.labels(name, objects.MASTER)}
    secret = {"kind": "Secret", "metadata": dict(named)}
    return JobCreation(cluster, own, owned or (lambda: [secret]), is_queued=False)


def test_a_job_is_released_when_everything_exists(api: Api) -> None:
    assert creation(api).create()
    job, secret = api.objects[JOB], api.objects[SECRET]
    assert not job["spec"]["suspend"]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert not creation(api).create(), "another one has the name"
    assert set(api.objects) == {JOB, SECRET}


@pytest.mark.parametrize("name", ["create Job", "create Secret", "patch"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_call_that_is_not_answered_is_repeated(
    api: Api, monkeypatch: pytest.MonkeyPatch, name: str, moment: str
) -> None:
    retry_for(600.0, monkeypatch)
    # A server that starts denies all calls.
    denied = ApiError(403, "Forbidden", 'User "ada" cannot create resource "jobs"')
    setattr(api, moment, fails(name, ApiUnavailable("cut"), *[denied] * (moment == "before")))
    assert creation(api).create(), "its own Job is no other one's"
    assert set(api.objects) == {JOB, SECRET}
    assert not api.objects[JOB]["spec"]["suspend"]


@pytest.mark.parametrize(
    "happens",
    [
        fails("create Secret", ApiError(403, "Forbidden", "exceeded quota")),
        fails("patch", ApiError(403, "Forbidden", 'User "ada" cannot patch resource "jobs"')),
        away("create Secret"),
        away("patch"),
    ],
)
def test_a_submission_that_fails_leaves_nothing(api: Api, happens: Happens) -> None:
    api.before = happens
    with pytest.raises(EdlError) as caught:
        creation(api).create()
    assert api.objects.keys() <= {SECRET}, "its owner is gone"
    assert "edl delete" not in caught.value.remedy


def test_a_job_that_cannot_be_withdrawn_comes_with_the_command_that_removes_it(api: Api) -> None:
    made = creation(api)
    assert made.create()
    api.before = away("get", "delete")
    late = EdlError(ErrorCode.TIMED_OUT, "it was not ready", remedy="Wait longer.")
    made.withdraw(late)
    assert late.remedy.startswith("Wait longer. The job may still be in the cluster")
    assert late.remedy.endswith(REMOVAL)
    api.objects.clear()
    api.before = away("patch", "get", "delete")
    with pytest.raises(EdlError) as caught:
        creation(api).create()
    assert caught.value.code == ErrorCode.CLUSTER_UNAVAILABLE
    assert caught.value.remedy.endswith(REMOVAL)


def test_ctrl_c_asks_once_and_notes_the_command(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_creation, "RETRY_S", 600.0)
    calls: list[str] = []

    def interrupt() -> Iterable[Any]:
        api.before = lambda called: (calls.append(called), away("get")(called))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        creation(api, interrupt).create()
    assert calls == ["get"]
    (note,) = caught.value.__notes__
    assert note.endswith(REMOVAL)


def test_another_job_of_the_name_is_never_withdrawn(api: Api) -> None:
    made = creation(api)
    assert made.create()
    api.objects[JOB]["metadata"]["uid"] = "of another one"
    made.withdraw(EdlError(ErrorCode.TIMED_OUT, "it was not ready"))
    assert JOB in api.objects


@pytest.mark.parametrize("path", [JOB, SECRET])
def test_an_object_that_is_not_of_edl_ends_a_submission_at_once(api: Api, path: str) -> None:
    foreign = {"metadata": {"name": "edl-digits", "uid": "foreign"}}
    api.objects[path] = foreign
    with pytest.raises(EdlError) as caught:
        creation(api).create()
    assert caught.value.code == ErrorCode.JOB_EXISTS
    assert "another --name" in caught.value.remedy
    assert api.objects == {path: foreign}


def test_an_object_of_a_former_job_of_the_name_is_waited_for(api: Api) -> None:
    owners = [{"kind": "Job", "uid": "former"}]
    api.objects[SECRET] = {"metadata": {"uid": "0", "ownerReferences": owners}}
    seen: list[str] = []

    def collect(called: str) -> None:
        seen.append(called)
        if called == "get" and seen.count("get") == 2:
            del api.objects[SECRET]

    api.before = collect
    assert creation(api).create()
    assert api.objects[SECRET]["metadata"]["ownerReferences"][0]["uid"] != "former"


class Killed(BaseException):
    """The end of a client that can clean up nothing."""


def leave_behind(api: Api, monkeypatch: pytest.MonkeyPatch, name: str, age_s: float) -> str:
    """Kill a submission between its Job and the rest; returns the uid of the Job."""

    def die() -> Iterable[Any]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(JobCreation, "withdraw", lambda *_: None)
        with pytest.raises(Killed):
            creation(api, die, name).create()
    metadata = api.objects[JOB.replace("digits", name)]["metadata"]
    metadata["creationTimestamp"] = rfc3339(time.time() - age_s, "seconds")
    return str(metadata["uid"])


def test_what_a_killed_submission_has_left_is_replaced_by_the_next_one_of_its_name(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_creation, "_UNRELEASED_S", 0.2)
    left = leave_behind(api, monkeypatch, "digits", 0.0)
    assert creation(api).create()
    assert api.objects[JOB]["metadata"]["uid"] != left
    assert not api.objects[JOB]["spec"]["suspend"]


@pytest.mark.parametrize("ahead_s", [0.0, 7200.0, -7200.0])
def test_a_submission_that_is_not_over_is_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    other = leave_behind(api, monkeypatch, "digits", ahead_s)  # by the clock of this machine

    def release(seconds: float) -> None:
        api.objects[JOB]["metadata"]["annotations"] = {}

    monkeypatch.setattr(job_creation.time, "sleep", release)
    assert not creation(api).create()
    assert api.objects[JOB]["metadata"]["uid"] == other


def test_a_submission_that_was_replaced_does_not_release_the_other_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace() -> Iterable[Any]:
        api.objects.pop(JOB)
        leave_behind(api, monkeypatch, "digits", 0.0)
        return []

    with pytest.raises(EdlError):
        creation(api, replace).create()
    assert api.objects[JOB]["spec"]["suspend"], "the other one releases it"


@pytest.mark.parametrize("ahead_s", [0.0, 7200.0, -7200.0])
@pytest.mark.parametrize(("age_s", "stays"), [(4000.0, False), (1000.0, True)])
def test_any_submission_removes_what_was_left_long_ago(
    api: Api, monkeypatch: pytest.MonkeyPatch, age_s: float, stays: bool, ahead_s: float
) -> None:
    api.behind_s = ahead_s
    released = creation(api, name="released")
    assert released.create()
    path = JOB.replace("digits", "released")
    api.objects[path]["metadata"]["creationTimestamp"] = rfc3339(time.time() - 1e6, "seconds")
    leave_behind(api, monkeypatch, "forgotten", ahead_s + age_s)
    assert creation(api).create()
    assert (JOB.replace("digits", "forgotten") in api.objects) is stays
    assert path in api.objects, "a job that runs for long is no remains"


class Clock:
    """A clock that moves only during ``sleep``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps = 0

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps += 1
        self.now += seconds


def test_jobs_of_the_name_that_come_and_go_are_not_waited_for_without_end(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(job_creation, "time", clock)
    tries = 0

    def vanish(called: str) -> None:
        nonlocal tries
        if called == "create Job":
            tries += 1
            assert tries < 10_000, "it is bounded"
            raise ApiError(409, "AlreadyExists", "it exists")

    api.before = vanish
    with pytest.raises(EdlError) as caught:
        creation(api).create()
    assert caught.value.code == ErrorCode.JOB_EXISTS
    assert "digits come and go" in caught.value.what
    assert tries == clock.naps > 100, "each try is followed by a pause"
    assert api.objects == {}


@pytest.mark.parametrize("released", [True, False])
def test_a_job_that_is_being_deleted_is_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    # As kubectl delete --cascade=foreground leaves it, and what finalizers hold.
    clock = Clock()
    monkeypatch.setattr(job_creation, "time", clock)
    leave_behind(api, monkeypatch, "digits", 0.0)
    former = api.objects[JOB]
    former["metadata"] |= {"deletionTimestamp": "now", "finalizers": ["example.com/hold"]}
    if released:
        former["metadata"]["annotations"] = {}
    deletions = 0

    def note(called: str) -> None:
        nonlocal deletions
        deletions += called == "delete"

    api.before = note
    said: list[str] = []
    with pytest.raises(EdlError) as caught:
        creation(api).create(said.append)
    assert caught.value.code == ErrorCode.JOB_EXISTS
    assert "finalizers hold it (example.com/hold)" in caught.value.what
    assert said == ["digits waits for the removal of a former job of its name"]
    assert (deletions, api.objects[JOB]) == (0, former)
    assert clock.naps > 100, "each try is followed by a pause"

    def end(called: str) -> None:
        if called == "get":
            api.objects.pop(JOB, None)

    api.after = end
    assert creation(api).create()
    assert api.objects[JOB]["metadata"]["uid"] != former["metadata"]["uid"]


def test_what_a_submission_waits_for_is_said_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_creation, "_UNRELEASED_S", 0.2)
    leave_behind(api, monkeypatch, "digits", 0.0)
    owners = [{"kind": "Job", "uid": "former"}]
    api.objects[SECRET] = {"metadata": {"uid": "0", "ownerReferences": owners}}
    looks = 0

    def collect(called: str) -> None:
        nonlocal looks
        looks += called == "create Secret"
        if looks == 4:
            api.objects.pop(SECRET, None)

    api.before = collect
    said: list[str] = []
    assert creation(api).create(said.append)
    assert said == [
        "digits waits for the end of another submission of its name",
        "waiting for the removal of the Secret edl-digits of a former job",
    ]
