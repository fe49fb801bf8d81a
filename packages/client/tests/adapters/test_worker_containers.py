"""What starts a job's workers, against a master that means harm; with an engine: tests/builder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edl.adapters.local import container_engine
from edl.adapters.local.store_credentials import provide
from edl.adapters.local.worker_containers import WorkerContainers
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local.container_calls import CallRefusedError

NAME = "edl-boxed-worker-3-0-0123abcd"


class Engine:
    """Has no containers, and takes what it is told to create."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []

    def inspect_container(self, name: str) -> dict[str, Any]:
        from docker.errors import NotFound

        raise NotFound(name)

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return []

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, **options: Any) -> None:
        self.created.append(options)

    def start(self, name: str) -> None:
        """Does not run it."""

    def close(self) -> None:
        """Nothing to leave."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    found = Engine()
    monkeypatch.setattr(container_engine, "connect", lambda *_: found)
    return found


def of_job(job_dir: Path, identities: IdentityFolder | None = None) -> WorkerContainers:
    (job_dir / "logs").mkdir(parents=True, exist_ok=True)
    spec = job_pb2.JobSpec(name="boxed", image="zoo@sha256:1")
    spec.containers.user = "1000:1000"
    return WorkerContainers(spec, job_dir, identities)


@pytest.fixture
def workers(tmp_path: Path, engine: Engine) -> WorkerContainers:
    return of_job(tmp_path / "job")


def start(workers: WorkerContainers, name: str = NAME, **more: Any) -> Any:
    fields: dict[str, Any] = {"log_start": 0, "command": ["true"], "environment": {}}
    return workers.handle({"call": "start", "instance": name, **fields, **more})


def log_of(engine: Engine) -> Path:
    (*_, mount) = engine.created[-1]["host_config"]["mounts"]
    return Path(mount["Source"])


def test_a_container_is_the_job_s_whatever_the_master_asks_for(
    workers: WorkerContainers, engine: Engine
) -> None:
    start(workers, image="evil", user="0:0", mounts=["/:/host"], network_mode="bridge")
    (made,) = engine.created
    assert (made["image"], made["user"], made["name"]) == ("zoo@sha256:1", "1000:1000", NAME)
    assert made["host_config"]["cap_drop"] == ["ALL"]
    assert 0 < made["host_config"]["pids_limit"] <= 4096
    assert [each["Target"] for each in made["host_config"]["mounts"]] == ["/run/edl.log"]


def test_a_worker_sees_its_own_identity_and_no_other(engine: Engine, tmp_path: Path) -> None:
    identities = IdentityFolder(tmp_path / "identity", "boxed")
    identities.create([(Role.MASTER, None), (Role.WORKER, 0)])
    workers = of_job(tmp_path / "job", identities)
    start(workers)
    own = tmp_path / "identity" / "worker-3"
    assert [path.name for path in own.iterdir()] == ["identity.pem"], "signed when it is needed"
    seen = {each["Target"]: each for each in engine.created[-1]["host_config"]["mounts"]}
    assert set(seen) == {str(own), "/run/edl.log"}
    assert (seen[str(own)]["Source"], seen[str(own)]["ReadOnly"]) == (str(own), True)
    # A number that no folder can have is the master's fault, and not an error of this process.
    with pytest.raises(CallRefusedError, match="gets no identity"):
        start(workers, f"edl-boxed-worker-{'9' * 300}-0-0123abcd")
    assert len(engine.created) == 1


def test_a_worker_sees_credentials_of_stores_read_only_and_as_files(
    engine: Engine, tmp_path: Path
) -> None:
    spec = job_pb2.JobSpec(name="boxed", image="zoo@sha256:1", data=["s3://bucket/x"])
    access = provide(
        tmp_path, spec, {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "very-secret"}
    )
    (tmp_path / "logs").mkdir()
    start(WorkerContainers(spec, tmp_path, None, access), environment={"AWS_CONFIG_FILE": "/x"})
    (made,) = engine.created
    seen = {each["Target"]: each for each in made["host_config"]["mounts"]}
    assert seen[str(tmp_path / "stores")]["ReadOnly"]
    named = made["environment"]["AWS_SHARED_CREDENTIALS_FILE"]
    assert Path(named).parent == tmp_path / "stores"
    assert "very-secret" not in str(made)


def test_the_log_of_a_worker_outlives_its_starts(
    workers: WorkerContainers, engine: Engine, tmp_path: Path
) -> None:
    log = tmp_path / "job" / "logs" / "worker-3.log"
    log.write_text("first\n")
    for _ in range(2):
        start(workers)
        assert os.path.samefile(log_of(engine), log)
    log.unlink()  # somebody cleared up
    start(workers, "edl-boxed-worker-3-1-0123abcd")
    assert os.path.samefile(log_of(engine), log)


def test_a_link_in_place_of_a_log_leads_nowhere(
    workers: WorkerContainers, engine: Engine, tmp_path: Path
) -> None:
    secret = tmp_path / "authorized_keys"
    secret.write_text("mine\n")
    log = tmp_path / "job" / "logs" / "worker-3.log"
    log.symlink_to(secret)
    with pytest.raises(CallRefusedError, match=r"worker-3\.log"):
        start(workers)
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(CallRefusedError, match="no file"):
        start(workers)
    log.unlink()
    start(workers)
    # A link that takes the log's place after the check is not what the engine follows.
    log.unlink()
    log.symlink_to(secret)
    assert not os.path.samefile(log_of(engine), secret)
    assert not engine.created[:-1]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"call": "create"},
        {"call": "start"},
        {"call": "start", "instance": 3, "log_start": 0},
        {"call": "start", "instance": NAME, "log_start": 0, "command": "sh"},
        {"call": "start", "instance": NAME, "log_start": 0, "command": [], "environment": [1]},
        {
            "call": "start",
            "instance": NAME + "\n",
            "log_start": 0,
            "command": [],
            "environment": {},
        },
        {"call": "signal", "instance": "edl-other-worker-0-0-01234567", "signal": "SIGKILL"},
        {"call": "signal", "instance": NAME, "signal": "SIGSTOP"},
        {"call": "remove", "instance": "../../x"},
        {"call": "wait", "instance": NAME, "seconds": "long"},
    ],
)
def test_a_call_that_is_none_is_refused(
    workers: WorkerContainers, engine: Engine, request_: dict[str, Any]
) -> None:
    with pytest.raises(CallRefusedError):
        workers.handle(request_)
    assert not engine.created


def test_a_job_has_no_more_containers_than_may_be(
    workers: WorkerContainers, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [{"Names": [f"/edl-boxed-worker-{n}-0-0123abcd"]} for n in range(1024)]
    monkeypatch.setattr(engine, "containers", lambda **_: many)
    with pytest.raises(CallRefusedError, match="1024 containers"):
        start(workers)
