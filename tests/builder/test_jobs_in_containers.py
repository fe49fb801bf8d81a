"""``edl --platform docker``: the product on a real engine, through its command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Edl, eventually, read_all

from edl_docker import job_container
from edl_proto.v1 import model_pb2
from edl_runtime.local import supervision

from .conftest import of_jobs
from .docker_environment import DockerEnvironment, exec_output

MNIST = ("--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api")


def built_images(docker_env: DockerEnvironment) -> set[str]:
    """Images in the engine that the builder has made."""
    client = docker_env.client()
    with contextlib.closing(client):
        return {image.id for image in client.images.list(filters={"label": "io.edl.image=1"})}


def trained_model(place: Path) -> model_pb2.TrainedModel:
    return model_pb2.TrainedModel.FromString((place / "trained_model.pb").read_bytes())


def steps(edl: Edl, name: str) -> int:
    return int(edl.written_status(name).get("progress", {}).get("steps", 0))


def spec(edl: Edl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((edl.job_dir(name) / "spec.json").read_text())
    return found


def test_mnist_from_folder_to_predictions(
    job_docker_env: DockerEnvironment, in_containers: Edl, digit_data: Path, tmp_path: Path
) -> None:
    edl, results = in_containers, tmp_path / "results"
    train = (
        *("train", *MNIST, "--data", f"{digit_data}/train/*.recordio", "--num-workers", "2"),
        *("--validation-data", f"{digit_data}/test", "--minibatch-size", "32", "-o", "json"),
    )
    first = edl(*train, "--name", "first", "--output", str(results / "model"))
    assert first.json["records_trained"] == 320
    assert 0 <= first.json["metrics"]["accuracy"] <= 1
    assert "image: building" in first.err
    image = trained_model(results / "model").docker_commit_id
    assert image.startswith(f"{edl.env['EDL_REPOSITORY']}@sha256:")
    assert spec(edl, "first")["image"] == image
    code = spec(edl, "first")["model"]["code"]
    assert code["sha256"] == trained_model(results / "model").code_sha256
    assert "copies" not in code, "the image has the code"
    for path in (results / "model").rglob("*"):
        assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid()), path
    images = built_images(job_docker_env)

    assert _train_by_program(edl, digit_data, results / "again") == "320"
    assert trained_model(results / "again").docker_commit_id == image

    use = ("--data", f"{digit_data}/test/*.recordio", "--trained-model", str(results / "model"))
    predicted = edl("predict", *use, "--name", "use", "--output", str(results / "predictions"))
    assert "image: " not in predicted.err  # neither built nor asked for
    assert spec(edl, "use")["image"] == image
    assert len(read_all(results / "predictions")) == 80
    assert built_images(job_docker_env) == images
    evaluated = edl("evaluate", *use, "-o", "json")
    assert evaluated.json["metrics"]["accuracy"] == pytest.approx(
        first.json["metrics"]["accuracy"], abs=1e-6
    )
    for name in ("first", "again", "use"):
        edl("delete", name, "--yes")


PROGRAM = """
import sys
import elasticdl

data, output = sys.argv[1:]
result = elasticdl.train(
    model_zoo="model_zoo", model_def="mnist.mnist_functional_api", data=data, minibatch_size=32,
    output=output, name="again", platform="docker",
)
print(result.records_trained)
"""


def _train_by_program(edl: Edl, digit_data: Path, output: Path) -> str:
    """Train from Python; returns what the program prints."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"{digit_data}/train/*.recordio", str(output)],
        env=edl.env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


HELD = """

import os, time
parsed = dataset_fn

def dataset_fn(dataset, mode):
    def take_time(record):
        if os.path.exists({held!r}):
            time.sleep(0.02)
        return record

    def slowly(record):
        return tf.ensure_shape(tf.numpy_function(take_time, [record], tf.string), [])

    return parsed(dataset.map(slowly), mode)
"""
"""While the file is there, the job uses little of the machine, and cannot be over."""


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A file in the folder of results, which containers see."""
    file = tmp_path / "results" / "held"
    file.parent.mkdir()
    file.touch()
    return file


@pytest.fixture
def circle(tmp_path: Path, in_containers: Edl, held: Path) -> tuple[str, ...]:
    """A small model and a job that takes for ever; while it is held, at 50 records a second."""
    zoo = tmp_path / "circle"
    in_containers("zoo", "init", str(zoo))
    with (zoo / "circle.py").open("a") as model:
        model.write(HELD.format(held=str(held)))
    return (
        *("train", "--model-zoo", str(zoo), "--model-def", "circle", "--detach"),
        *("--data", f"{zoo}/data/train.recordio", "--num-epochs", "100000"),
        *("--output", str(tmp_path / "results" / "model"), "--keep-page", "0s"),
    )


SIGN = """
import sys
from pathlib import Path
from edl_proto.identity.names import Role
from edl_runtime.identity.folder import IdentityFolder
folder = IdentityFolder(Path(sys.argv[1]), "long")
assert folder.provide(Role.WORKER, 99).exists()
folder.renew()
"""


def kill(container: Any, pid: int) -> None:
    """Kill a process by its number within the container."""
    assert container.exec_run(["sh", "-c", f"kill -9 {pid}"]).exit_code == 0


def _kill_master(docker_env: DockerEnvironment, edl: Edl, name: str) -> None:
    """Kill a job's master; another one follows within the container, and keeps the workers."""
    place = edl.job_dir(name)
    # What is on the disk is what the next master goes on from.
    eventually(lambda: list((place / "snapshots").glob(f"{name}-*")), "a snapshot")
    record = place / "master.json"
    began = record.stat().st_mtime
    eventually(lambda: time.time() - began > job_container._SETTLED_S + 1, "a settled master")
    workers = edl.workers(name)
    (container,) = of_jobs(docker_env, edl)
    kill(container, json.loads(record.read_bytes())["pid"])
    events = place / "events.jsonl"
    eventually(lambda: "CheckpointRestored" in events.read_text(), "it goes on from its snapshot")
    before = steps(edl, name)
    eventually(lambda: steps(edl, name) > before + 4, "more steps")
    assert edl.workers(name) == workers
    assert [each.name for each in of_jobs(docker_env, edl)] == [container.name]


def test_a_worker_and_a_master_that_die_are_replaced_and_stop_and_delete_leave_nothing(
    job_docker_env: DockerEnvironment, in_containers: Edl, circle: tuple[str, ...]
) -> None:
    edl = in_containers
    edl(*circle, "--name", "long", "--num-workers", "2", "--parameter-servers", "1")
    page = edl("dashboard", "long", "-o", "json").json["dashboard_url"]
    assert page.startswith(edl.status("long")["dashboard_url"])
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    for _ in range(2):  # the second time by its cookie
        with browser.open(page, timeout=200) as answer:
            assert b'id="job-name"' in answer.read()
    eventually(lambda: steps(edl, "long") > 4, "the job at work")
    (container,) = of_jobs(job_docker_env, edl)
    # It does not see the engine, and changes nothing that this machine believes.
    place = edl.job_dir("long")
    writable = {mount["Destination"]: mount["RW"] for mount in container.attrs["Mounts"]}
    assert job_docker_env.engine.removeprefix("unix://") not in writable
    assert not any("docker.sock" in path for path in writable)
    for name in ("spec.json", "supervisor.json", "container.json", "identity/authority.pem"):
        assert writable[str(place / name)] is False
    said = exec_output(
        container, ["sh", "-c", f"echo x > {place}/spec.json; rm -rf {place}/supervisor.json"]
    )
    assert "Read-only" in said
    assert "busy" in said
    before = eventually(
        lambda: len(found := edl.workers("long")) == 2 and found, "both workers are known"
    )
    kill(container, before[0])

    def has_successor() -> bool:
        now = edl.workers("long")
        return len(now) == 2 and before[0] not in now.values() and before[1] in now.values()

    eventually(has_successor, "another process in its place")
    eventually(lambda: edl.written_status("long").get("preemptions") == 1, "the preemption counted")
    # The master signs the identities of workers that the client did not know of.
    signed = container.exec_run(["python3", "-P", "-c", SIGN, str(place / "identity")])
    assert signed.exit_code == 0, signed.output
    _kill_master(job_docker_env, edl, "long")
    edl("scale", "long", "--workers", "1")
    eventually(lambda: len(edl.workers("long")) == 1, "one worker to be left")
    assert "records/s" in edl("logs", "long", "--tail", "200").out
    stopped = edl("stop", "long", "-o", "json")
    assert stopped.json["state"] == "CANCELLED"
    edl("delete", "long", "--yes")
    assert not edl.job_dir("long").exists()


def test_every_record_is_trained_once_though_supervisor_and_container_are_killed(
    job_docker_env: DockerEnvironment, in_containers: Edl, circle: tuple[str, ...], held: Path
) -> None:
    edl = in_containers
    edl(*circle, "--num-epochs", "2", "--name", "exact", "--num-workers", "2")
    place = edl.job_dir("exact")
    eventually(lambda: steps(edl, "exact") > 4, "the job at work")
    eventually(lambda: list((place / "snapshots").glob("exact-*")), "a snapshot")
    (first,) = of_jobs(job_docker_env, edl)

    def supervisor() -> int:
        return supervision.supervisor_pid(place) or 0

    def keeper() -> int:
        return int(json.loads((place / "container.json").read_bytes())["pid"])

    killed = supervisor()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: supervisor() not in (0, killed), "another supervisor")
    killed = keeper()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: keeper() != killed, "another process waits for the container")
    assert [each.name for each in of_jobs(job_docker_env, edl)] == [first.name], "and adopts it"
    first.kill()
    eventually(
        lambda: [each.name for each in of_jobs(job_docker_env, edl)] not in ([], [first.name]),
        "another container",
    )
    held.unlink()
    done = edl("wait", "exact", "-o", "json", timeout=900)
    assert done.json["records_trained"] == 2 * 2000
    assert "CheckpointRestored" in (place / "events.jsonl").read_text()
    edl("delete", "exact", "--yes")


def test_ctrl_c_during_a_build_names_the_state_of_the_build(
    job_docker_env: DockerEnvironment, in_containers: Edl, circle: tuple[str, ...], tmp_path: Path
) -> None:
    edl = in_containers
    unique = f"toolz==1.0.0 ; platform_version != '{edl.env['EDL_REPOSITORY']}'\n"
    (tmp_path / "circle" / "requirements.txt").write_text(unique)
    child = edl.start(*circle, "--name", "never", "--build-log")
    try:
        assert child.stderr is not None
        for line in child.stderr:
            if "Collecting toolz" in line or "RUN PIP_BREAK" in line:
                break
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=200)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130, said
    assert "The build was cancelled" in said
    assert not edl.job_dir("never").exists()
    listed = subprocess.run(
        ["pgrep", "-f", str(edl.home / "builder")], capture_output=True, text=True, check=False
    )
    assert not listed.stdout, "the builder ends with the command"


def test_paths_that_containers_cannot_see_are_reported(
    in_containers: Edl, circle: tuple[str, ...], tmp_path: Path
) -> None:
    done = in_containers.run(*circle, "--output", "/etc/model")
    assert done.code == 2, str(done)
    assert "/etc cannot be mounted into containers as a whole" in done.err
    done = in_containers.run(*circle, env={"EDL_ENGINE": f"unix://{tmp_path}/none.sock"})
    assert done.code == 11, str(done)
    assert "none.sock" in done.err
    done = in_containers.run(*circle, env={"EDL_REPOSITORY": ""})
    assert done.code == 2
    assert "--repository" in done.err
    done = in_containers.run(*circle, env={"EDL_BASE_IMAGE": "127.0.0.1:1/nothing/there:1"})
    assert done.code == 11, str(done)
    assert not (in_containers.home / "jobs").exists()
