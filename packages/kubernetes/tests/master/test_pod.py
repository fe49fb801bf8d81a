"""The start and the end of a master in a pod, with an API server in memory."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi, outage
from google.protobuf import json_format

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError
from edl_kubernetes.master import api_retry, former_masters, pod
from edl_master.adapters.job_directory import JobDirectory
from edl_master.app import startup
from edl_master.app.host_environment import HostEnvironment
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.authority import Authority
from edl_runtime.identity.page_key import PageKey
from edl_runtime.local import job_directory

JOB = "/apis/batch/v1/namespaces/team/jobs/edl-job"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/team/leases/edl-job"
POD = "/api/v1/namespaces/team/pods/edl-job-abc"
RECORD = "/api/v1/namespaces/team/configmaps/edl-job"


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave signals, logging and variables of this process as they are."""
    monkeypatch.setattr(api_retry, "_FIRST_S", 0.0)
    monkeypatch.setattr(former_masters, "_FIRST_DELAY_S", 0.0)
    monkeypatch.setattr(pod, "_DIRECTORY_EVERY_S", 0.01)
    monkeypatch.setattr("edl_kubernetes.master.master_term._CHECK_INTERVAL_S", 0.01)
    monkeypatch.setenv(objects.POD_NAME, "edl-job-abc")
    handler, handlers = signal.getsignal(signal.SIGTERM), list(logging.getLogger().handlers)
    yield
    signal.signal(signal.SIGTERM, handler)
    for added in set(logging.getLogger().handlers) - set(handlers):
        logging.getLogger().removeHandler(added)
        added.close()


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    uid = api.put(JOB, {"spec": {"backoffLimit": 1000000}})["metadata"]["uid"]
    owner = {"kind": "Job", "name": "edl-job", "uid": uid}
    api.put(POD, {"metadata": of_a_master(owner, 12)})
    return api


def of_a_master(owner: dict[str, str], minute: int) -> dict[str, Any]:
    return {
        "ownerReferences": [owner],
        "labels": {objects.LABEL_JOB: "job"},
        "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
    }


def put_former(api: FakeApi, number: int, lived_s: int = 2, **ended: Any) -> None:
    """A former master of the Job, whose container has ended."""
    metadata = of_a_master(api.objects[POD]["metadata"]["ownerReferences"][0], number)
    terminated = {
        "exitCode": 1,
        "startedAt": "2026-01-01T01:00:00Z",
        "finishedAt": f"2026-01-01T01:{lived_s // 60:02}:{lived_s % 60:02}Z",
        **ended,
    }
    state = {"name": objects.CONTAINER, "state": {"terminated": terminated}}
    pod = {"metadata": {**metadata, "name": f"edl-job-{number}"}}
    pod["status"] = {"phase": "Failed", "containerStatuses": [state]}
    api.put(f"{POD.rpartition('/')[0]}/edl-job-{number}", pod)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return write_spec(tmp_path / "secret.json", submitted_at="2026-01-01T00:00:00Z")


def write_spec(path: Path, submitted_at: str) -> Path:
    spec = job_pb2.JobSpec(
        name="job",
        submitted_at=submitted_at,
        kubernetes=job_pb2.KubernetesSpec(namespace="team", worker_pod="{}"),
    )
    path.write_text(json_format.MessageToJson(spec))
    return path


def read_spec(path: Path) -> job_pb2.JobSpec:
    return json_format.Parse(path.read_text(), job_pb2.JobSpec())


class Work:
    """Stands for the work on a job: it ends in a state."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: job_pb2.JobState.ValueType = job_pb2.SUCCEEDED
        self.host_environments: list[HostEnvironment] = []
        monkeypatch.setattr(startup, "work", self)

    def __call__(self, directory: JobDirectory, host_environment: HostEnvironment) -> int:
        self.host_environments.append(host_environment)
        directory.write_status(job_pb2.JobStatus(name="job", state=self.state), final=True)
        directory.lock.release()
        return 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def test_a_job_with_a_result_ends_with_code_0_and_leaves_the_job_alone(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    assert pod.run(secret, tmp_path / "state", lambda: api) == 0
    assert api.objects[JOB]["spec"]["backoffLimit"] == 1000000
    assert "SUCCEEDED" in api.objects[RECORD]["data"][objects.STATUS_KEY]
    folder = tmp_path / "state" / "job"
    assert read_spec(folder / job_directory.SPEC) == read_spec(secret)
    assert (folder / "logs" / "master.log").exists()


def test_the_key_of_the_page_is_that_of_the_secret(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    own = PageKey.create()
    secret.with_name(objects.PAGE_KEY).write_text(own.text)
    assert pod.run(secret, tmp_path / "state", lambda: api) == 0
    found = PageKey.read(tmp_path / "state" / "job" / job_directory.PAGE)
    assert found is not None
    assert found.text == own.text


@pytest.mark.parametrize("state", [job_pb2.FAILED, job_pb2.CANCELLED])
def test_an_end_without_a_result_is_made_final_before_the_master_exits(
    api: FakeApi,
    secret: Path,
    tmp_path: Path,
    work: Work,
    state: job_pb2.JobState.ValueType,
) -> None:
    work.state = state
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    assert api.objects[JOB]["spec"]["backoffLimit"] == 0


def test_the_end_waits_for_an_api_server_that_is_away(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    work.state = job_pb2.FAILED
    api.before = outage(40)
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    assert api.objects[JOB]["spec"]["backoffLimit"] == 0


@pytest.mark.parametrize("refused", [POD, LEASE, "/api/v1/namespaces/team/pods", RECORD, JOB])
def test_a_token_that_is_refused_for_a_while_fails_neither_start_nor_end(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work, refused: str
) -> None:
    work.state = job_pb2.FAILED
    left = iter(range(20))

    def refuse_first(method: str, path: str) -> None:
        if path == refused and next(left, None) is not None:
            raise ApiError(401, "Unauthorized", "Unauthorized")

    api.before = refuse_first
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    assert api.objects[JOB]["spec"]["backoffLimit"] == 0
    assert "FAILED" in api.objects[RECORD]["data"][objects.STATUS_KEY]
    assert next(left, None) is None


@pytest.mark.parametrize("refused", [POD, LEASE, "/api/v1/namespaces/team/pods", RECORD, JOB])
def test_a_master_whose_pod_is_gone_leaves_the_job_to_the_next_one(
    api: FakeApi,
    secret: Path,
    tmp_path: Path,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
    refused: str,
) -> None:
    """Such an end is no failed start, and the next one concludes what this one could not."""
    work.state = job_pb2.FAILED
    monkeypatch.setattr(api_retry, "_REJECTED_S", 0.0)

    def reject_token(method: str, path: str) -> None:
        if path == refused:
            raise ApiError(401, "Unauthorized", "Unauthorized")

    api.before = reject_token
    assert pod.run(secret, tmp_path / "state", lambda: api) == job_directory.DIRECTORY_TAKEN
    assert api.objects[JOB]["spec"]["backoffLimit"] == 1000000
    api.before = outage(0)
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    assert api.objects[JOB]["spec"]["backoffLimit"] == 0


def test_a_later_job_of_the_same_name_is_not_ended(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    work.state = job_pb2.FAILED
    later = api.put(JOB, {"spec": {"backoffLimit": 1000000}})
    assert later["metadata"]["uid"] != api.objects[POD]["metadata"]["ownerReferences"][0]["uid"]
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    assert api.objects[JOB]["spec"]["backoffLimit"] == 1000000


def test_a_job_whose_masters_fail_at_each_start_fails_with_their_reason(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    for number in range(former_masters.MAX_FAILURES):
        put_former(api, number)
    unusable = tmp_path / "state"
    unusable.write_text("no directory")
    assert pod.run(secret, unusable, lambda: api) == startup.FAILED
    assert not work.host_environments
    assert api.objects[JOB]["spec"]["backoffLimit"] == 0
    status = json.loads(api.objects[RECORD]["data"][objects.STATUS_KEY])
    assert (status["state"], status["error"]["code"]) == ("FAILED", "MASTER_LOST")
    assert "exit code 1" in status["error"]["what"]
    assert status["error"]["detail"] == "the log"


def test_a_master_waits_longer_after_each_failed_start_but_not_after_disruptions(
    api: FakeApi,
    secret: Path,
    tmp_path: Path,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kubernetes itself starts each one at once."""
    monkeypatch.setattr(former_masters, "_FIRST_DELAY_S", 0.01)
    waits: list[float] = []

    def wait(failures: int) -> float:
        waits.append(delay_s(failures))
        return 0.0

    delay_s = former_masters.delay_s
    monkeypatch.setattr(former_masters, "delay_s", wait)
    for number in range(former_masters.MAX_FAILURES):
        put_former(api, 20 + number, exitCode=143)
        assert pod.run(secret, tmp_path / "state", lambda: api) == 0
        put_former(api, number)
    assert waits == [0, 0.01, 0.02, 0.04, 0.08, 0.16]


@pytest.mark.parametrize(
    "last",
    [
        {"lived_s": 600},  # it has worked
        {"exitCode": 137},  # killed from outside
        {"exitCode": 143},
        {"exitCode": job_directory.DIRECTORY_TAKEN},
    ],
)
def test_masters_that_have_worked_or_were_killed_do_not_fail_a_job(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work, last: dict[str, Any]
) -> None:
    for number in range(former_masters.MAX_FAILURES - 1):
        put_former(api, number)
    put_former(api, former_masters.MAX_FAILURES, **last)
    assert pod.run(secret, tmp_path / "state", lambda: api) == 0


def test_a_master_without_enough_memory_fails_its_job_with_the_remedy(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    for number in range(former_masters.MAX_FAILURES):
        put_former(api, number, exitCode=137, reason="OOMKilled")
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    status = json.loads(api.objects[RECORD]["data"][objects.STATUS_KEY])
    assert "its memory limit was exceeded" in status["error"]["what"]
    assert "--master-resources" in status["error"]["remedy"]


def test_each_master_has_an_incarnation_of_its_epoch(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    for _ in range(2):
        pod.run(secret, tmp_path / "state", lambda: api)
    first, second = (host_environment.incarnation for host_environment in work.host_environments)
    assert (first[:6], second[:6]) == ("000001", "000002")
    assert first[6:] != second[6:], "a job of the same name begins with the same numbers"


def test_the_next_master_keeps_the_directory_as_it_is(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    pod.run(secret, tmp_path / "state", lambda: api)
    kept = tmp_path / "state" / "job" / "snapshots"
    kept.mkdir()
    spec = tmp_path / "state" / "job" / job_directory.SPEC
    before = spec.stat().st_mtime_ns  # a later one would begin a job that is over again
    pod.run(secret, tmp_path / "state", lambda: api)
    assert kept.is_dir()
    assert spec.stat().st_mtime_ns == before
    api.objects[JOB]["metadata"]["annotations"] = {objects.ANNOTATION_EPOCHS: "5"}  # resumed
    pod.run(secret, tmp_path / "state", lambda: api)
    assert kept.is_dir()
    assert read_spec(spec).training.num_epochs == 5


def test_another_job_of_the_same_name_does_not_go_on_from_the_state_of_the_former_one(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    pod.run(secret, tmp_path / "state", lambda: api)
    folder = tmp_path / "state" / "job"
    (folder / "snapshots").mkdir()
    later = write_spec(tmp_path / "later.json", submitted_at="2026-02-02T00:00:00Z")
    pod.run(later, tmp_path / "state", lambda: api)
    assert not (folder / "snapshots").exists()
    assert read_spec(folder / job_directory.SPEC) == read_spec(later)


def test_a_master_waits_until_the_former_one_has_left_the_directory(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state" / "job"
    folder.mkdir(parents=True)
    former = JobDirectory(folder)
    former.lock.hold()
    tries = []

    def leave_after_some(_: float) -> None:
        tries.append(0)
        if len(tries) == 5:
            former.lock.release()

    monkeypatch.setattr("edl_kubernetes.master.pod.time.sleep", leave_after_some)
    assert pod.run(secret, tmp_path / "state", lambda: api) == 0
    assert len(tries) >= 5


def test_a_master_that_waits_gives_up_when_a_later_one_comes(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    folder = tmp_path / "state" / "job"
    folder.mkdir(parents=True)
    former = JobDirectory(folder)
    former.lock.hold()
    api.put(LEASE, {"spec": {"leaseTransitions": 1}})

    def take_over(method: str, path: str) -> None:
        if (method, path) == ("GET", LEASE) and ("PUT", LEASE) in api.calls:
            api.put(LEASE, {"spec": {"leaseTransitions": 9}})

    api.before = take_over
    code = pod.run(secret, tmp_path / "state", lambda: api)
    former.lock.release()
    assert code == job_directory.DIRECTORY_TAKEN
    assert work.host_environments == []
    assert not (folder / job_directory.SPEC).exists(), "it must write nothing"
    assert api.objects[JOB]["spec"]["backoffLimit"] == 1000000, "the later master goes on"


def test_a_pod_that_no_job_has_made_is_no_master(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    api.put(POD, {"metadata": {}})
    assert pod.run(secret, tmp_path / "state", lambda: api) == startup.FAILED
    assert "no Job has created it" in caplog.text
    assert work.host_environments == []


def test_a_master_signs_its_own_identity_outside_of_the_volume_of_its_state(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    authority = tmp_path / objects.AUTHORITY_KEY
    authority.write_bytes(Authority.create("job").to_pem())
    for _ in range(2):  # the next master has the same authority
        assert pod.run(secret, tmp_path / "state", lambda: api, authority) == 0
    signed = []
    for host_environment in work.host_environments:
        assert host_environment.identities is not None
        signed.append(Credentials(host_environment.identities.provide(Role.MASTER)))
    assert signed[0].authority == signed[1].authority
    assert not list((tmp_path / "state").rglob("*.pem"))
    private = [path for path in tmp_path.glob("edl-*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o700}
    assert len(private) == 2


def test_a_job_of_an_earlier_version_has_no_identities(
    api: FakeApi, secret: Path, tmp_path: Path, work: Work
) -> None:
    assert pod.run(secret, tmp_path / "state", lambda: api, tmp_path / "none") == 0
    assert work.host_environments[0].identities is None
