"""Life with jobs: looking at them, scaling, stopping, leaving and coming back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import NO_EVALUATION_BEFORE_THE_END, ROOT, Edl, HeldTraining, eventually
from counting import UPDATES, check, event_kinds, records_trained, train
from safetensors.numpy import load_file

from edl_runtime.local import supervision


@pytest.fixture
def long_job(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> Callable[..., str]:
    """Starts a job that goes on until it is stopped, and waits until it trains."""
    data = numbered(400)

    def start(name: str = "long", workers: str = "2") -> str:
        arguments = train(
            data, 400, tmp_path / "model", "--num-workers", workers, epochs=9, held=held
        )
        edl(*arguments, "--name", name, "--detach")
        eventually(lambda: records_trained(edl, name) > 0, "training has begun")
        return name

    return start


def test_a_job_is_seen_scaled_stopped_and_forgotten(
    edl: Edl, long_job: Callable[..., str], tmp_path: Path
) -> None:
    name = long_job()
    assert name in edl("list").out
    assert [job["job"] for job in edl("list", "-o", "json").json] == [name]
    assert edl("list", "-o", "name").out.split() == [name]
    assert "running" in edl("status", name).out
    kinds = [
        json.loads(line)["kind"] for line in edl("events", name, "-o", "json").out.splitlines()
    ]
    assert "WorkerReady" in kinds

    edl("scale", name, "--workers", "3")
    eventually(lambda: len(edl.workers(name)) == 3, "the third worker")
    edl("scale", name, "--workers", "1")
    eventually(lambda: len(edl.workers(name)) == 1, "one worker is left")
    before = int(edl.status(name)["records_trained"])
    eventually(lambda: records_trained(edl, name) > before, "it still trains")

    refused = edl.run("delete", name, "--yes")
    assert refused.code != 0
    assert "edl stop" in refused.err
    edl("stop", name)
    assert edl.status(name)["state"] == "CANCELLED"
    waited = edl.run("wait", name)
    assert waited.code == 8, str(waited)
    edl("delete", name, "--yes")
    assert not edl.job_dir(name).exists()
    assert edl("list", "-o", "name").out.split() == []
    assert not (tmp_path / "model").exists()


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Processes that do nothing meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_scale_waits_for_the_next_master(edl: Edl, long_job: Callable[..., str]) -> None:
    """The test listens in the place of the master that was killed, until the command has tried."""
    name = long_job(workers="1")
    job_dir = edl.job_dir(name)
    former = json.loads((job_dir / "master.json").read_bytes())
    host, _, port = former["address"].rpartition(":")
    overseer = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    # Nothing starts a master, and only the command looks for one.
    with frozen([overseer, *edl.workers(name).values()]):
        os.kill(former["pid"], signal.SIGKILL)
        eventually(lambda: not supervision.has_master(job_dir), "it is gone")
        with socket.create_server((host, int(port))) as listener:
            listener.settimeout(200)
            scaling = edl.start("scale", name, "--workers", "2")
            connection, _ = listener.accept()
            connection.close()
    out, err = scaling.communicate(timeout=200)
    assert (scaling.returncode, out) == (0, f"{name}: 2 workers\n"), err
    assert edl.status(name)["workers_wanted"] == {"min": 2, "max": 2}
    eventually(lambda: len(edl.workers(name)) == 2, "the second worker")
    edl("stop", name)


@pytest.mark.parametrize("update", ["async", "local"])
def test_a_learning_rate_that_is_set_holds_from_then_on_whatever_master_follows(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining, update: str
) -> None:
    """The weights are the records trained before the rate was 0, times the submitted rate."""
    total, epochs, output = 61, 60, tmp_path / "model"
    arguments = train(numbered(total), total, output, *UPDATES[update], epochs=epochs, held=held)
    arguments += ["--set", "learning-rate=2"]
    edl(*arguments, "--name", "set", "--num-workers", "2", "--detach")
    # What is trained after the last snapshot is trained again at the new rate.
    eventually(
        lambda: int(edl.written_status("set").get("saved_version", 0)) > 0,
        "a snapshot of some training",
        every=0.02,
    )
    assert "rate     2, the learning rate that was set" in edl("status", "set").out
    edl("set", "set", "learning-rate=0")
    during = records_trained(edl, "set") + 2 * 100  # with local steps, tasks of the former rate
    os.kill(json.loads((edl.job_dir("set") / "master.json").read_bytes())["pid"], signal.SIGKILL)
    held.release()
    edl("wait", "set")
    status = edl.status("set")
    assert status["learning_rate"] == 0
    assert status["records_trained"] == epochs * total
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert not (weights % 2).any()
    assert 0 < weights.sum() / 2 <= during < epochs * total
    assert "LearningRateSet" in event_kinds(edl, "set")


def test_ctrl_c_leaves_the_job_running_and_it_is_the_only_one_of_its_name(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """Ctrl-C says how to come back; another job cannot have the name; logs of it are followed."""
    arguments = train(numbered(100), 100, tmp_path / "model", epochs=99, held=held)
    running = edl.start(*arguments, "--name", "left")
    eventually(lambda: records_trained(edl, "left") > 0, "it trains")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=200)
    assert running.returncode == 130
    for word in ("edl status left", "edl stop left"):
        assert word in err
    before = int(edl.status("left")["records_trained"])
    eventually(lambda: records_trained(edl, "left") > before, "it goes on alone")

    again = edl.run(
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "mnist.mnist_subclass"),
        *("--data", str(tmp_path / "numbered"), "--name", "left", "--output", str(tmp_path / "b")),
    )
    assert again.code == 5, str(again)
    assert "left" in again.err
    assert len(edl("list", "-o", "name").out.split()) == 1

    assert "[worker 0]" in edl("logs", "left").out
    assert edl("logs", "left", "--worker", "0", "--tail", "1").out.count("\n") == 1
    follower = edl.start("logs", "left", "-f")
    edl("stop", "left")
    out, _ = follower.communicate(timeout=200)
    assert follower.returncode == 0
    assert out


def test_checkpoints_carry_a_stopped_job_on(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """Stopped in the middle and sent again, stopped, exported and resumed under a storm of kills:
    the counts come out as if never stopped."""
    total, epochs, output = 61, 20, tmp_path / "model"
    arguments = train(
        *(numbered(total), total, output, "--checkpoint-dir", str(tmp_path / "checkpoints")),
        *("--name", "again"),
        epochs=epochs,
        held=held,
    )
    edl(*arguments, "--detach")
    eventually(lambda: records_trained(edl, "again") > total, "an epoch has passed", every=0.02)
    edl("stop", "again")
    stopped = int(edl.status("again")["records_trained"])
    assert total < stopped < epochs * total
    edl("delete", "again", "--yes")
    edl(*arguments, "--detach")
    eventually(lambda: records_trained(edl, "again") > stopped, "it trains", every=0.02)
    exported = edl("stop", "again", "--export", "-o", "json").json
    assert exported["output"] == str(output)
    status = edl.status("again")
    assert status["state"] == "CANCELLED"
    assert stopped < status["records_trained"] < epochs * total
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert weights.sum() == status["progress"]["records_done"]
    refused = edl.run("export", "again")
    assert refused.code == 5, str(refused)
    assert "--overwrite replaces a model that again has written there" in refused.err
    assert load_file(output / "parameters.safetensors").values(), "it is as it was"
    assert edl("list", "-o", "name").out.split() == ["again"], "the refused job is gone"
    edl("export", "again", "--overwrite")
    assert edl("list", "-o", "name").out.split() == ["again"], "the short job is gone"
    edl("resume", "again", "--detach")
    for process in edl.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    held.release()
    result = edl("resume", "again", "-o", "json").json
    assert result["records_trained"] == epochs * total
    check(output, total, epochs)
    assert "CheckpointRestored" in event_kinds(edl, "again")


def test_a_job_gets_more_epochs_after_it_was_stopped_and_after_success(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    total, output = 61, tmp_path / "model"
    edl(
        *train(
            *(numbered(total), total, output, "--checkpoint-dir", str(tmp_path / "checkpoints")),
            *("--name", "more", "--detach"),
            epochs=20,
            held=held,
        )
    )
    eventually(lambda: records_trained(edl, "more") > total, "an epoch has passed", every=0.02)
    running = edl.run("resume", "more", "--num-epochs", "21")
    assert running.code == 5, str(running)
    assert "edl stop more, then edl resume more --num-epochs 21" in running.err
    edl("stop", "more")
    held.release()
    result = edl("resume", "more", "--epochs", "21", "-o", "json").json
    assert (result["epochs"], result["records_trained"]) == (21, 21 * total)
    check(output, total, 21)
    same = edl.run("resume", "more", "--num-epochs", "21")
    assert same.code == 2, str(same)
    assert "more has 21 epochs already" in same.err
    result = edl("resume", "more", "--num-epochs", "23", "-o", "json").json
    assert (result["state"], result["epochs"]) == ("SUCCEEDED", 23)
    check(output, total, 23)
    shutil.rmtree(tmp_path / "checkpoints")
    without = edl.run("resume", "more", "--num-epochs", "24")
    assert without.code == 6, str(without)
    assert f"--init-from {output}" in without.err
    check(output, total, 23)


def test_init_from_a_trained_model(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    name = "mnist/mnist_functional_api.py"
    code = (ROOT / "model_zoo" / name).read_text()
    wider = code.replace("Dense(10)(x)", 'Dense(12)(tf.keras.layers.Dense(16, name="extra")(x))')
    assert wider != code
    (tmp_path / "zoo" / "mnist").mkdir(parents=True)
    (tmp_path / "zoo" / name).write_text(wider)

    def train(output: str, *more: str, zoo: Path = ROOT / "model_zoo") -> Any:
        return edl(
            *("train", "--model-zoo", str(zoo), "-o", "json", "--name", output),
            *("--model-def", "mnist.mnist_functional_api", "--data", f"{digit_data}/train"),
            *("--validation-data", f"{digit_data}/test", "--output", str(tmp_path / output)),
            *more,
        ).json

    first = train("first", "--num-epochs", "8", *NO_EVALUATION_BEFORE_THE_END)
    assert first["metrics"]["accuracy"] > 0.7, "a model at chance would show nothing below"
    values = str(tmp_path / "first" / "model.keras")  # a file as Keras itself writes it
    second = train("second", "--init-from", values, "--params", "lr=1e-9")
    assert second["metrics"]["accuracy"] == pytest.approx(first["metrics"]["accuracy"], abs=0.05)
    assert "warnings" not in second
    # The layers that are the same begin as trained; the others are named.
    third = train("third", "--init-from", str(tmp_path / "first"), zoo=tmp_path / "zoo")
    partly, unused = third["warnings"]
    assert partly.startswith("8 of 12 variables begin with values of --init-from ")
    for fresh in ("extra/kernel", "extra/bias", "dense/kernel (16, 12), there (9216, 10)"):
        assert fresh in partly
    assert unused.startswith("Not used of --init-from ")
    assert edl.status("third")["warnings"] == third["warnings"]
    assert partly in edl("status", "third").out


def test_evaluations_on_the_way_tensorboard_and_the_page_of_a_job_that_is_over(
    edl: Edl, tmp_path: Path, digit_data: Path
) -> None:
    edl(
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--name", "curves", "-q"),
        *("--model-def", "mnist.mnist_functional_api", "--data", f"{digit_data}/train"),
        *("--validation-data", f"{digit_data}/test", "--num-epochs", "3"),
        *("--evaluation-steps", "5", "--output", str(tmp_path / "model")),
    )
    curves = {
        curve["name"]: [(int(point["step"]), point["value"]) for point in curve["points"]]
        for curve in edl.status("curves")["curves"]
    }
    assert len(curves["accuracy"]) >= 3
    assert len(curves["loss"]) >= 3
    import tensorflow as tf

    scalars: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((edl.job_dir("curves") / "tensorboard").rglob("*tfevents*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    assert scalars.keys() == curves.keys()
    for name, points in curves.items():
        np.testing.assert_allclose(scalars[name], points, rtol=1e-6, err_msg=name)
    _check_page_of_past_job(edl, "curves")


def _check_page_of_past_job(edl: Edl, name: str) -> None:
    looking = edl.start("dashboard", name)
    try:
        assert looking.stdout is not None
        link = looking.stdout.readline().strip()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(link, timeout=200) as answer:
            assert b"<html" in answer.read()
            url = answer.url
        with browser.open(f"{url}api/status", timeout=200) as answer:
            status = json.load(answer)
        assert (status["name"], status["state"]) == (name, "SUCCEEDED")
        with browser.open(f"{url}api/events?after=2", timeout=200) as answer:
            events = json.load(answer)
        assert [int(event["number"]) for event in events] == list(range(3, len(events) + 3))
        assert "JobSucceeded" in [event["kind"] for event in events]
    finally:
        looking.send_signal(signal.SIGINT)
        _, err = looking.communicate(timeout=200)
    assert looking.returncode == 0, err
