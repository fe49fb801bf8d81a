"""``--strategy allreduce``: workers come, go and die, and every record counts once per epoch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, Edl, HeldTraining, eventually
from counting import check, event_kinds, records_trained, train
from safetensors.numpy import load_file

ALLREDUCE = ("--strategy", "allreduce")
TOTAL, EPOCHS = 803, 2


def begin(edl: Edl, data: Path, held: HeldTraining, *more: str, workers: int = 2) -> Path:
    """Start a job that has trained a little; return the place of its model."""
    output = data.parent / "model"
    command = train(data, TOTAL, output, *ALLREDUCE, *more, epochs=EPOCHS, held=held)
    edl(*command, "--num-workers", str(workers), "--name", "r", "--detach")
    eventually(lambda: records_trained(edl, "r") > 20, "some training")
    return output


def worker_pids(edl: Edl, name: str) -> set[int]:
    """The processes of a job's workers; their files come and go."""
    found = set()
    for instance in (edl.job_dir(name) / "instances").glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found.add(json.loads(instance.read_bytes())["pid"])
    return found


def test_workers_are_killed_added_and_removed(
    edl: Edl, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    output = begin(edl, numbered(TOTAL), held)
    first = worker_pids(edl, "r")

    os.kill(min(first), signal.SIGKILL)
    eventually(lambda: worker_pids(edl, "r") - first, "another worker in its place")
    before = records_trained(edl, "r")
    eventually(lambda: records_trained(edl, "r") > before, "the training goes on")
    edl("scale", "r", "--workers", "3")
    eventually(lambda: event_kinds(edl, "r").count("WorkerReady") == 4, "a third worker")
    edl("scale", "r", "--workers", "1")
    held.release()
    edl("wait", "r")

    check(output, TOTAL, EPOCHS)
    status = edl.status("r")
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    assert "ValuesLost" not in event_kinds(edl, "r"), "one of them always had the values"


def test_workers_that_share_no_memory_are_killed_and_added(
    edl: Edl, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """They exchange gradients over connections with mutual TLS, as on several machines."""
    edl.env["EDL_RING_HOST"] = "127.0.0.1"
    output = begin(edl, numbered(TOTAL), held, workers=3)
    first = worker_pids(edl, "r")

    for number, victim in enumerate(sorted(first)[:2], 4):
        os.kill(victim, signal.SIGKILL)
        eventually(lambda n=number: event_kinds(edl, "r").count("WorkerReady") == n, "a newcomer")
    before = records_trained(edl, "r")
    eventually(lambda: records_trained(edl, "r") > before, "the training goes on")
    assert not (edl.job_dir("r") / "replicas").exists(), "nothing is shared"
    edl("scale", "r", "--workers", "2")
    held.release()
    edl("wait", "r")

    check(output, TOTAL, EPOCHS)
    assert "ValuesLost" not in event_kinds(edl, "r"), "one of them always had the values"


def test_a_job_whose_workers_all_die_goes_back_to_its_snapshot(
    edl: Edl, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    output = begin(edl, numbered(TOTAL), held)

    for worker in worker_pids(edl, "r"):
        os.kill(worker, signal.SIGKILL)
    eventually(lambda: "ValuesLost" in event_kinds(edl, "r"), "the master notices")
    held.release()
    edl("wait", "r")

    check(output, TOTAL, EPOCHS)


def test_workers_keep_what_they_have_trained_when_the_master_is_killed(
    edl: Edl, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """There is one snapshot, of the beginning."""
    output = begin(edl, numbered(TOTAL), held, "--snapshot-interval", "600")
    eventually(lambda: list((edl.job_dir("r") / "snapshots").glob("r-*")), "the snapshot")
    saved = records_trained(edl, "r")
    eventually(lambda: records_trained(edl, "r") > saved, "steps after it")
    workers, before = worker_pids(edl, "r"), edl.status("r")
    master = json.loads((edl.job_dir("r") / "master.json").read_bytes())["pid"]

    os.kill(master, signal.SIGKILL)
    eventually(lambda: "StepsKept" in event_kinds(edl, "r"), "the next master")
    after = edl.status("r")
    assert int(after["progress"]["parameter_version"]) >= int(
        before["progress"]["parameter_version"]
    )
    assert worker_pids(edl, "r") == workers
    held.release()
    edl("wait", "r")

    check(output, TOTAL, EPOCHS)
    assert int(edl.status("r")["records_replayed"]) == 0


def test_a_stopped_job_is_resumed_by_other_workers(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """What was trained is kept, for the last worker saves its values before it leaves."""
    output = begin(edl, numbered(TOTAL), held)
    edl("stop", "r")
    trained = records_trained(edl, "r")
    edl("export", "r", "--output", str(tmp_path / "exported"))
    (weights,) = load_file(tmp_path / "exported" / "parameters.safetensors").values()
    assert weights.sum() == trained

    held.release()
    edl("resume", "r", "--detach")
    edl("wait", "r")
    check(output, TOTAL, EPOCHS)
    assert int(edl.status("r")["records_replayed"]) == 0, f"{trained} records were kept"


def test_callbacks_and_metrics_work_as_before(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    output = tmp_path / "model"
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "digits.py").write_text(
        (ROOT / "model_zoo/mnist/mnist_functional_api.py").read_text()
        + """

def callbacks():
    return [
        tf.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=0, min_delta=1e9),
        tf.keras.callbacks.EarlyStopping(
            monitor="val_loss", patience=1, min_delta=1e9, restore_best_weights=True
        ),
    ]
"""
    )
    command = [
        *("train", "--model-zoo", str(zoo), "--model-def", "digits", *ALLREDUCE),
        *("--data", str(digit_data / "train"), "--validation-data", str(digit_data / "test")),
        *("--num-workers", "2", "--num-epochs", "9", "--minibatch-size", "32"),
    ]
    edl(*command, "--name", "d", "--output", str(output))

    status = edl.status("d")
    assert status["state"] == "SUCCEEDED"
    assert int(status["progress"]["epochs_done"]) == 2, "the second epoch was not better enough"
    assert status["learning_rate"] < 0.001
    assert status["metrics"]["accuracy"] > 0.2
    edl(
        "evaluate",
        "--trained-model",
        str(output),
        "--data",
        str(digit_data / "test"),
        "--name",
        "e",
    )
    assert abs(edl.status("e")["metrics"]["accuracy"] - status["metrics"]["accuracy"]) < 1e-6


def strategy_of(edl: Edl, name: str) -> str:
    """The strategy of a job, by its status."""
    return str(edl.status(name)["settings"]["training.strategy"])


def test_a_model_without_tables_is_trained_by_all_reduce(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """Its master remembers, also where it is killed or the job is stopped."""
    data, output = numbered(TOTAL), tmp_path / "model"
    command = train(data, TOTAL, output, "--strategy", "auto", epochs=EPOCHS, held=held)
    edl(*command, "--num-workers", "2", "--name", "a", "--detach")
    eventually(lambda: records_trained(edl, "a") > 20, "some training")
    assert strategy_of(edl, "a") == "allreduce"
    assert "  strategy allreduce" in edl("status", "a").out
    assert event_kinds(edl, "a").count("StrategyChosen") == 1

    master = json.loads((edl.job_dir("a") / "master.json").read_bytes())
    os.kill(master["pid"], signal.SIGKILL)
    held.release()
    edl("wait", "a")
    check(output, TOTAL, EPOCHS)
    assert strategy_of(edl, "a") == "allreduce"


def test_a_model_with_tables_is_trained_by_a_parameter_server(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    data, output = numbered(TOTAL), tmp_path / "model"
    auto = ("--strategy", "auto", "--num-workers", "2", "--name", "t")
    edl(*train(data, TOTAL, output, *auto, epochs=EPOCHS, model="counting_rows"))
    check(output, TOTAL, EPOCHS)
    settings = edl.status("t")["settings"]
    assert settings["training.strategy"] == "parameter-server"
    assert settings["training.update"] == "ASYNC"
    assert "StrategyChosen" in event_kinds(edl, "t")
