"""Master and supervisor die; workers stay, and nothing is lost or repeated."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Edl, HeldTraining, MakeEdl, eventually, read_all
from counting import check, event_kinds, records_trained, train

import recordio
import recordio.example
from edl_runtime.local import supervision
from edl_testing.fork_server import find_fork

TOTAL, EPOCHS = 803, 2


def master(edl: Edl, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((edl.job_dir(name) / "master.json").read_bytes())
    return facts


def worker_pids(edl: Edl, name: str) -> set[int]:
    pods = (edl.job_dir(name) / "instances").glob("*.json")
    return {json.loads(pod.read_bytes())["pid"] for pod in pods}


@pytest.mark.own_start
@pytest.mark.smoke
def test_a_job_survives_its_master_and_its_supervisor(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """Both are killed, alone and together; no client looks at the job, and only workers notice."""
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "m", "--detach"),
    )
    job_dir = edl.job_dir("m")
    eventually(lambda: list((job_dir / "snapshots").glob("m-*")), "a snapshot")
    eventually(lambda: records_trained(edl, "m") > 20, "some training")
    workers = worker_pids(edl, "m")
    assert len(workers) == 2

    first = master(edl, "m")
    os.kill(first["pid"], signal.SIGKILL)
    eventually(lambda: master(edl, "m")["incarnation"] != first["incarnation"], "a new master")
    second = master(edl, "m")
    assert second["address"] == first["address"], "where the workers look for it"

    overseer = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    os.kill(overseer, signal.SIGKILL)
    eventually(
        lambda: supervision.supervisor_pid(job_dir) not in (None, overseer),
        "the master starts another supervisor",
    )

    eventually(lambda: "WorkerReady" in event_kinds(edl, "m"), "the workers are back")
    overseer = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    os.kill(overseer, signal.SIGKILL)
    os.kill(second["pid"], signal.SIGKILL)
    eventually(lambda: master(edl, "m")["incarnation"] != second["incarnation"], "a third master")

    held.release()
    edl("wait", "m")
    status = edl.status("m")
    assert status["state"] == "SUCCEEDED"
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
    assert event_kinds(edl, "m").count("CheckpointRestored") == 2
    assert (status["preemptions"], status["worker_failures"]) == (0, 0)
    for worker in (0, 1):
        log = (job_dir / "logs" / f"worker-{worker}.log").read_text()
        assert log.count("--- ") == 1, "no worker was started a second time"
    lost = status["progress"]["lost_s"]
    assert lost["restarting"] > 0
    assert all(seconds >= 0 for seconds in lost.values())


def test_a_job_goes_on_after_sigterm_to_all_of_its_processes(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """A reboot leaves nothing of the job running; a client that looks at the job revives it."""
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "r", "--detach"),
    )
    job_dir = edl.job_dir("r")
    eventually(lambda: list((job_dir / "snapshots").glob("r-*")), "a snapshot")
    supervisor = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    everything = [supervisor, master(edl, "r")["pid"], *worker_pids(edl, "r")]
    for pid in everything:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not supervision.has_master(job_dir), "the master ends")
    assert not supervision.is_over(job_dir)
    assert "MasterSuspended" in event_kinds(edl, "r")
    held.release()
    edl("wait", "r")
    status = edl.status("r")
    assert status["state"] == "SUCCEEDED"
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)


IMPATIENT_SUPERVISOR = """
import signal, sys
from edl.adapters.local import supervisor
from edl.adapters.local import instances
from edl.core import supervision

def shorten_silence(*_):
    supervision.SILENCE_S = 0.5

def end_once(self):
    supervision.SILENCE_S = 600.0
    end(self)

signal.signal(signal.SIGUSR1, shorten_silence)
end, supervisor.Supervisor._end_master = supervisor.Supervisor._end_master, end_once
supervision.SILENCE_S = instances.MASTER_GRACE_S = 600.0
sys.exit(supervisor.main())
"""
"""Ends one silent master, when SIGUSR1 says so, and lets it take its time."""


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a process has still to take a signal that was sent to it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("ShdPnd:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def test_a_frozen_master_that_thaws_when_it_is_asked_to_end_does_not_cancel_the_job(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """A supervisor asks before it kills, and so the master finds a SIGTERM when it thaws."""
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, epochs=EPOCHS, held=held),
        *("--name", "t", "--detach"),
    )
    job_dir = edl.job_dir("t")
    eventually(lambda: list((job_dir / "snapshots").glob("t-*")), "a snapshot")
    commands = supervision.commands(job_dir)
    assert commands is not None
    supervision.describe(job_dir, [sys.executable, "-c", IMPATIENT_SUPERVISOR], commands[1])
    patient = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    os.kill(patient, signal.SIGKILL)
    impatient = eventually(
        lambda: (pid := supervision.supervisor_pid(job_dir)) != patient and pid, "the next one"
    )
    frozen = master(edl, "t")
    os.kill(frozen["pid"], signal.SIGSTOP)
    os.kill(impatient, signal.SIGUSR1)
    eventually(lambda: is_pending(frozen["pid"], signal.SIGTERM), "it is asked to end")
    os.kill(frozen["pid"], signal.SIGCONT)
    eventually(
        lambda: (
            supervision.is_over(job_dir) or master(edl, "t")["incarnation"] != frozen["incarnation"]
        ),
        "a new master",
    )
    held.release()
    edl("wait", "t")
    status = edl.status("t")
    assert status["state"] == "SUCCEEDED"
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
    assert event_kinds(edl, "t").count("MasterSuspended") == 1
    assert (status["preemptions"], status["worker_failures"]) == (0, 0)


def test_a_frozen_worker_is_noticed_and_a_thawed_one_is_welcome(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "f", "--detach"),
    )
    eventually(lambda: records_trained(edl, "f") > 20, "some training")
    victim = find_fork(sorted(worker_pids(edl, "f"))[0])
    os.kill(victim, signal.SIGSTOP)
    eventually(lambda: "WorkerLost" in event_kinds(edl, "f"), "it is missed", every=0.02)
    assert os.path.exists(f"/proc/{victim}")
    os.kill(victim, signal.SIGCONT)
    held.release()
    edl("wait", "f")
    assert int(edl.status("f")["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
    assert "WorkerRecovered" in event_kinds(edl, "f")


# --- user code that hangs ----------------------------------------------------------------------

HANGING = """
import os, time
import tensorflow as tf
from counting import dataset_fn as counted, loss, model, optimizer
from elasticdl.python.common.constants import Mode

seen = []

def sleeps_for_ever_once(number):
    seen.append(number)
    time.sleep(0.005)
    if len(seen) == 350:  # after 1.75 s: the other worker has joined, and has the values, too
        try:
            os.close(os.open(os.environ["EDL_TEST_ONCE"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number
        while True:
            time.sleep(3600)
    return number

def dataset_fn(dataset, mode):
    def slowly(features, number):
        wait = tf.numpy_function(sleeps_for_ever_once, [number], tf.int64)
        return features, tf.ensure_shape(wait, [])
    return counted(dataset, mode).map(slowly)
"""
"""The counting model, whose pipeline hangs in the first worker that has read some records."""


def test_user_code_that_hangs_is_named_replaced_and_nothing_is_lost(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    total, output = 2_400, tmp_path / "model"
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "hanging.py").write_text(HANGING)
    shutil.copy(ROOT / "model_zoo" / "counting.py", zoo)
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "hanging.model"),
        *("--params", f"size={total}"),
        *("--data", str(numbered(total)), "--num-epochs", "1", "--minibatch-size", "8"),
        *("--records-per-task", "400", "--num-workers", "2", "--output", str(output), "-q"),
        *("--name", "h"),
        env={"EDL_TEST_ONCE": str(tmp_path / "once")},
    )
    status = edl.status("h")
    assert status["state"] == "SUCCEEDED"
    check(output, total, 1)
    assert int(status["records_trained"]) == total
    lines = (edl.job_dir("h") / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    found = {event["kind"]: event for event in events}
    order = [event["kind"] for event in events]
    assert (
        order.index("WorkerStallSuspected")
        < order.index("WorkerStacks")
        < order.index("WorkerStalled")
    )
    hung = found["WorkerStalled"]["facts"]["worker"]
    assert "sleeps_for_ever_once" in found["WorkerStacks"]["facts"]["stacks"]
    # As the runbook of stalled jobs says: the events name the worker, and its log has the stacks.
    assert f"Worker {hung}" in found["WorkerStallSuspected"]["message"]
    log = edl("logs", "h", "--worker", str(hung)).out
    assert log.count("--- ") == 2, "another process took its place"
    assert "sleeps_for_ever_once" in log
    assert status["worker_failures"] == 1
    assert status["progress"]["lost_s"]["stalled"] > 0


# --- jobs on a trained model -------------------------------------------------------------------

RECORDS, PER_TASK = 600, 12

NUMBERS = """
import os, time
import tensorflow as tf
from elasticdl.python.common.constants import Mode

def model(size):
    number = tf.keras.Input(shape=(), dtype="int64", name="number")
    weight = tf.keras.layers.Embedding(size, 1, embeddings_initializer="zeros")(number)
    return tf.keras.Model(number, tf.keras.layers.Reshape(())(weight))

def slowly(number):
    "Says what it does, and takes its time while the test holds the job."
    if os.path.exists(os.environ["EDL_TEST_HELD"]):
        time.sleep(0.2)
    with open(os.environ["EDL_TEST_SEEN"], "a") as seen:
        seen.write(f"{number}\\n")
    return number

def dataset_fn(dataset, mode):
    def parse(record):
        features = {"number": tf.io.FixedLenFeature([], tf.int64)}
        number = tf.io.parse_single_example(record, features)["number"]
        if mode != Mode.TRAINING:
            number = tf.ensure_shape(tf.numpy_function(slowly, [number], tf.int64), [])
        return {"number": number} if mode == Mode.PREDICTION else ({"number": number}, number)
    return dataset.map(parse)

def loss(labels, predictions):
    # The weight of a record becomes its number.
    return -tf.reduce_sum(predictions * tf.cast(labels, tf.float32))

def optimizer():
    return tf.keras.optimizers.SGD(learning_rate=1.0)

def eval_metrics_fn():
    return {"mean": lambda labels, predictions: predictions}
"""
"""A model that predicts a record's number, and tells each record that it is given."""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory, make_edl: MakeEdl) -> tuple[Path, Path]:
    """Data in two files, and a model trained on it that predicts each record's number."""
    place = tmp_path_factory.mktemp("numbers")
    (place / "zoo").mkdir()
    (place / "zoo" / "numbers.py").write_text(NUMBERS)
    for file, (start, stop) in enumerate([(0, 300), (300, RECORDS)]):
        with recordio.Writer(str(place / f"part-{file}.recordio")) as writer:
            for number in range(start, stop):
                writer.write(recordio.example.encode({"number": np.array([number])}))
    edl = make_edl(place / "edl-home")
    edl(
        *("train", "--model-zoo", str(place / "zoo"), "--model-def", "numbers"),
        *("--params", f"size={RECORDS}", "--data", f"{place}/*.recordio"),
        *("--num-epochs", "1", "--output", str(place / "model"), "-q"),
    )
    return place, place / "model"


def read_done_tasks(edl: Edl, name: str) -> set[int]:
    """Return the numbers of the tasks that the newest snapshot counts as done."""
    for place in sorted((edl.job_dir(name) / "snapshots").glob(f"{name}-*"), reverse=True):
        try:
            ledger = json.loads((place / "ledger.json").read_bytes())["ledger"]
        except FileNotFoundError:
            continue  # replaced meanwhile
        for round_ in ledger["rounds"]:
            return set(range(round_["cursor"])) - {task["number"] for task in round_["open"]}
    return set()


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_job_on_a_trained_model_goes_on_where_its_master_died(
    edl: Edl, tmp_path: Path, numbers: tuple[Path, Path], verb: str
) -> None:
    data, model = numbers
    held = tmp_path / "held"
    held.touch()  # until then, the job takes a minute
    seen, output = tmp_path / "seen", tmp_path / "out.recordio"
    edl(
        *(verb, "--trained-model", str(model), "--data", f"{data}/*.recordio"),
        *("--records-per-task", str(PER_TASK), "--num-workers", "2", "--name", verb, "--detach"),
        *(("--output", str(output)) if verb == "predict" else ()),
        env={"EDL_TEST_SEEN": str(seen), "EDL_TEST_HELD": str(held)},
    )
    # Once before there is anything to go on from: the workers, which know nothing yet, stay.
    eventually(lambda: len(worker_pids(edl, verb)) == 2, "two workers", every=0.02)
    first = master(edl, verb)
    os.kill(first["pid"], signal.SIGKILL)
    assert not read_done_tasks(edl, verb)
    eventually(lambda: master(edl, verb)["incarnation"] != first["incarnation"], "a new master")
    assert master(edl, verb)["address"] == first["address"]

    eventually(lambda: len(read_done_tasks(edl, verb)) > 2, "a snapshot of some work", every=0.02)
    second = master(edl, verb)
    os.kill(second["pid"], signal.SIGKILL)
    kept, before = read_done_tasks(edl, verb), len(seen.read_text().split())
    eventually(lambda: master(edl, verb)["incarnation"] != second["incarnation"], "a third master")

    held.unlink()
    edl("wait", verb)
    status = edl.status(verb)
    assert status["state"] == "SUCCEEDED"
    progress = status["progress"]
    assert int(progress["records_done"]) == int(progress["records_total"]) == RECORDS
    assert event_kinds(edl, verb).count("CheckpointRestored") == 1
    assert (status["preemptions"], status["worker_failures"]) == (0, 0)
    logs = edl.job_dir(verb) / "logs"
    starts = [(logs / f"worker-{worker}.log").read_text().count("--- ") for worker in (0, 1)]
    assert starts == [1, 1], "no worker was started a second time"

    given = [int(number) for number in seen.read_text().split()]
    assert set(given) == set(range(RECORDS))
    # No task is across two files; 300 records are 25 tasks.
    again = {number // PER_TASK for number in given[before:]}
    assert not again & kept, "what the snapshot counts as done is not done again"
    if verb == "predict":
        found = [recordio.example.decode(r)["prediction"] for r in read_all(output)]
        np.testing.assert_array_equal(np.ravel(found), np.arange(RECORDS))
    else:
        assert status["metrics"]["mean"] == (RECORDS - 1) / 2
