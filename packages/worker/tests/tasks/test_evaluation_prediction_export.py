"""Evaluation, prediction and export over real gRPC, against a single process with Keras."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from conftest import RECORDS, ZOO, Master, Start, lease, training

import recordio
import recordio.example
from edl_proto import tensor
from edl_proto.errors import ErrorCode
from edl_proto.v1 import job_pb2, model_pb2, parameters_pb2, task_pb2
from edl_testing.fake_master import FakeMaster
from edl_worker.codec.jobs import decode_job
from edl_worker.codec.tasks import encode_result
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.config import Settings
from edl_worker.core.registration import WorkerIdentity
from edl_worker.core.tasks import ExportInfo, LeaseRef, MetricState, TaskKey, TaskResult, TaskType
from edl_worker.runtime.identity import identity
from edl_worker.tasks import weight_files
from edl_worker.tasks.loaded_model import load
from edl_worker.training.initial_values import send_initial_values
from edl_worker.training.replica import ParameterReplica
from edl_worker.transport.master_connection import MasterConnection
from edl_worker.transport.parameter_client import ParameterClient
from edl_worker.transport.task_client import TaskClient


def evaluations(points: Path) -> list[list[task_pb2.Lease]]:
    cuts = [0, 30, 61, 100]
    parts = [
        lease(task_pb2.EVALUATION, points, start, stop, number=number)
        for number, (start, stop) in enumerate(itertools.pairwise(cuts))
    ]
    summary = task_pb2.Lease(task=task_pb2.TaskKey(type=task_pb2.EVALUATION_SUMMARY, round=1))
    return [parts, [summary]]


def export(output: str, number: int = 0) -> task_pb2.Lease:
    return task_pb2.Lease(
        task=task_pb2.TaskKey(type=task_pb2.EXPORT, number=number),
        part_path=output,
        export=task_pb2.ExportInfo(records_trained=100, epochs=1, metrics={"accuracy": 0.5}),
    )


def all_points(points: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    records = list(recordio.open_source(str(points)).read(0, RECORDS))
    examples = [recordio.example.decode(record) for record in records]
    return np.stack([e["x"] for e in examples]), np.array([e["label"][0] for e in examples])


def by_keras(
    job: job_pb2.JobSpec, named: reference.Named, points: Path
) -> tuple[keras.Model, dict[str, float]]:
    """The model with these values, and what ``model.evaluate`` says of all points at once."""
    file = reference.load_model(job)
    weight_files.assign(file.model, weight_files.NamedValues(named, "the master"))
    x, y = all_points(points)
    file.model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    result = file.model.evaluate(x, y, batch_size=RECORDS, verbose=0, return_dict=True)
    return file.model, result


def metrics_of(master: FakeMaster) -> dict[str, float]:
    (found,) = [
        dict(task.complete.metrics)
        for task in master.all_tasks()
        if task.lease.task.type == task_pb2.EVALUATION_SUMMARY and task.complete
    ]
    return found


# --- evaluation --------------------------------------------------------------------------------


def test_an_evaluation_in_parts_equals_one_of_the_whole(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [[training(points, 0, 100)], *evaluations(points)])
    assert start_worker(master).wait() == 0
    assert not master.received.failed
    _, wanted = by_keras(job, master.by_name(), points)
    got = metrics_of(master)
    assert set(got) == {"loss", "accuracy"}
    assert got["accuracy"] == pytest.approx(wanted["accuracy"], abs=1e-6)
    assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-4)
    examples = [t.complete.examples for t in master.stages[1] if t.complete]
    assert examples == [30, 31, 39]


def test_training_goes_on_with_the_newest_parameters_after_an_evaluation_of_frozen_ones(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = [training(points, 0, 44), training(points, 44, 100, number=1)]
    parts, summary = evaluations(points)
    for part in parts:
        part.frozen = "stage-0"  # from before the first task, which is done by then
    master = start_master(job, [[tasks[0]], parts, summary, [tasks[1]]])
    assert start_worker(master).wait() == 0
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))
    frozen = [pull.frozen for pull in master.received.pulls if pull.frozen]
    assert frozen == ["stage-0"], "one version, fetched once for three tasks"


def test_a_copy_of_frozen_parameters_is_none_of_the_newest(
    job: job_pb2.JobSpec, start_master: Master
) -> None:
    master = start_master(job, [])
    loaded = load(decode_job(job), {"worker_id": 0})
    model = loaded.trainable
    assert model is not None
    connection = MasterConnection(Settings(master.address, 0), identity(0), SharedState())
    tasks = TaskClient(connection)
    tasks.register(0)
    client = ParameterClient(connection)
    client.open(tasks.ready(loaded.describe()), loaded.describe())
    replica = ParameterReplica(model.arena, model.trainer, client)
    assert not replica.pull().initialized, "there are no values yet"
    assert send_initial_values(client, model.arena.pack(), None)
    assert not send_initial_values(client, model.arena.pack(), None), "only once"
    initial = master.values.copy()
    master.frozen["old"] = 0, initial
    master.values = np.full_like(initial.view(np.float32), 7.0).view(np.uint8)
    master.version = 3
    for _ in range(2):
        assert replica.pull().initialized
        assert replica.version == 3
        np.testing.assert_array_equal(model.arena.pack(), master.values)
        assert replica.use_frozen("old") == 0
        np.testing.assert_array_equal(model.arena.pack(), initial)
    client.close()
    connection.close()


def test_metric_states_travel_exactly(job: job_pb2.JobSpec, points: Path) -> None:
    file = reference.load_model(job)
    metrics = file.new_metrics()
    x, y = all_points(points)
    metrics.update(tf.constant(y), file.call({"x": tf.constant(x)}, training=False))
    states = tuple(MetricState(name, tuple(arrays)) for name, arrays in metrics.states())
    ref = LeaseRef(TaskKey(TaskType.EVALUATION, 1, 0), 1)
    me = WorkerIdentity(0, "instance", "host", pid=1)
    sent = encode_result(me, "incarnation", ref, TaskResult(metric_states=states)).metric_states
    for (name, arrays), message in zip(metrics.states(), sent, strict=True):
        assert message.name == name
        for array, value in zip(arrays, message.variables, strict=True):
            got = tensor.decode(value)
            assert got.dtype == np.asarray(array).dtype
            np.testing.assert_array_equal(got, array)


# --- export ------------------------------------------------------------------------------------


@pytest.fixture
def exported(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start, tmp_path: Path
) -> tuple[Path, FakeMaster]:
    """The output of a training job, and its master."""
    job.model.params = ""
    master = start_master(job, [[training(points, 0, 100)], [export(job.output)]])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    return tmp_path / "out", master


def test_an_output_holds_all_that_the_documents_promise(
    exported: tuple[Path, FakeMaster], job: job_pb2.JobSpec, points: Path
) -> None:
    output, master = exported
    assert sorted(path.name for path in output.iterdir()) == [
        "model.keras",
        "model_zoo",
        "parameters.safetensors",
        "saved_model",
        "trained_model.pb",
    ]
    assert not [path.name for path in output.parent.iterdir() if path.name.endswith(".tmp")]
    told = model_pb2.TrainedModel.FromString((output / "trained_model.pb").read_bytes())
    assert told.model_def == "points"
    assert told.params_filename == "parameters.safetensors"
    assert told.minibatch_size == 8
    assert told.job == "points"
    assert (told.parameter_version, told.records_trained, told.epochs) == (13, 100, 1)
    assert dict(told.metrics) == {"accuracy": 0.5}
    assert {"edl", "tensorflow", "keras", "python"} <= set(told.versions)
    copied = sorted(path.name for path in (output / "model_zoo").iterdir())
    assert copied == ["points.py"], "the other models of the zoo are no part of this one"

    stored = weight_files.read(output / "parameters.safetensors")
    reference.assert_close(dict(stored.arrays), master.by_name())

    x, _ = all_points(points)
    model, _ = by_keras(job, master.by_name(), points)
    wanted = model.predict(x, verbose=0)
    restored = tf.keras.models.load_model(output / "model.keras")
    np.testing.assert_allclose(restored.predict(x, verbose=0), wanted, rtol=1e-5, atol=1e-6)


def test_the_saved_model_serves_without_edl_or_keras(
    exported: tuple[Path, FakeMaster], job: job_pb2.JobSpec, points: Path, tmp_path: Path
) -> None:
    output, master = exported
    x, _ = all_points(points)
    np.save(tmp_path / "x.npy", x)
    program = (
        "import sys, numpy as np, tensorflow as tf\n"
        f"model = tf.saved_model.load({str(output / 'saved_model')!r})\n"
        "serve = model.signatures['serving_default']\n"
        "print(sorted(serve.structured_input_signature[1]), file=sys.stderr)\n"
        f"out = serve(x=tf.constant(np.load({str(tmp_path / 'x.npy')!r})))\n"
        f"np.savez({str(tmp_path / 'y.npz')!r}, **{{k: v.numpy() for k, v in out.items()}})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=200, cwd="/")
    model, _ = by_keras(job, master.by_name(), points)
    served = np.load(tmp_path / "y.npz")
    assert served.files == ["prediction"]
    np.testing.assert_allclose(
        served["prediction"], model.predict(x, verbose=0), rtol=1e-4, atol=1e-5
    )


def test_a_subclassed_model_is_exported_too(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start, tmp_path: Path
) -> None:
    job.model.model_def = "subclassed.Points"
    job.model.params = "width=6"
    master = start_master(job, [[training(points, 0, 100)], [export(job.output)]])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    output = tmp_path / "out"
    assert (output / "saved_model" / "saved_model.pb").exists()
    served = tf.saved_model.load(output / "saved_model").signatures["serving_default"]
    x, _ = all_points(points)
    file = reference.load_model(job)
    weight_files.assign(file.model, weight_files.read(output / "parameters.safetensors"))
    np.testing.assert_allclose(
        served(x=tf.constant(x))["prediction"].numpy(),
        file.model({"x": tf.constant(x)}, training=False).numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_subclassed_model_may_take_words(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start, tmp_path: Path
) -> None:
    job.model.model_def = "words.WordsAndPoints"
    master = start_master(job, [[training(points, 0, 100)], [export(job.output)]])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    served = tf.saved_model.load(tmp_path / "out" / "saved_model").signatures["serving_default"]
    x, _ = all_points(points)
    told = [
        served(x=tf.constant(x), word=tf.fill(len(x), word))["prediction"].numpy()
        for word in ("left", "right")
    ]
    assert not np.array_equal(*told)


def test_what_a_model_cannot_have_costs_no_more_than_that(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start, tmp_path: Path
) -> None:
    """A pipe in the zoo, a model that Keras cannot save, one that cannot be traced for serving."""
    zoo = tmp_path / "zoo"
    shutil.copytree(job.model.model_zoo, zoo)
    os.mkfifo(zoo / "pipe")
    with (zoo / "unsaveable.py").open("w") as file:
        file.write(
            "from points import *\n"
            "class Net(tf.keras.Model):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.dense = tf.keras.layers.Dense(3)\n"
            "    def call(self, inputs, training=False):\n"
            "        if not training and not tf.executing_eagerly():\n"
            "            raise ValueError('eager only')\n"
            "        return self.dense(inputs['x'])\n"
            "    def get_config(self):\n"
            "        raise NotImplementedError('no config, sorry')\n"
        )
    job.model.model_zoo, job.model.model_def = str(zoo), "unsaveable.Net"
    job.model.params = ""
    master = start_master(job, [[training(points, 0, 16)], [export(job.output)]])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    told = [task.complete for task in master.all_tasks() if task.complete][-1].warnings
    assert ["model.keras" in text for text in told] == [True, False]
    assert "eager only" in told[1]
    assert list(master.received.ready[0].warnings) == [told[0]], "told before training"
    output = tmp_path / "out"
    assert {path.name for path in output.iterdir()} == {
        *("model_zoo", "parameters.safetensors", "trained_model.pb")
    }
    assert {path.name for path in (output / "model_zoo").iterdir()} == {
        "points.py",
        "unsaveable.py",
    }
    described = model_pb2.TrainedModel.FromString((output / "trained_model.pb").read_bytes())
    assert (described.keras_filename, described.saved_model) == ("", "")


def test_sparse_features_are_served(job: job_pb2.JobSpec, tmp_path: Path) -> None:
    zoo = tmp_path / "zoo"
    shutil.copytree(job.model.model_zoo, zoo)
    (zoo / "sparse.py").write_text(
        "import points\n"
        "from points import *\n"
        "inputs = tf.keras.Input((4,), sparse=True, name='x')\n"
        "model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(inputs))\n"
        "def dataset_fn(dataset, mode):\n"
        "    dense = points.dataset_fn(dataset, mode)\n"
        "    return dense.map(lambda x, y: ({'x': tf.sparse.from_dense(x['x'])}, y))\n"
    )
    job.model.model_zoo, job.model.model_def, job.model.params = str(zoo), "sparse", ""
    trainable = load(decode_job(job), {"worker_id": 0}).trainable
    assert trainable is not None
    assert trainable.exporter.export(ExportInfo(), str(tmp_path / "trained")) == ()
    back = tf.saved_model.load(tmp_path / "trained" / "saved_model")
    served = back.serve({"x": tf.sparse.from_dense([[0.0, 1.0, 0.0, 0.0]])})
    assert served["prediction"].shape == (1, 3)


def test_a_full_disk_leaves_nothing_behind(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
    small_disk: Path,
) -> None:
    job.output = str(small_disk / "out")
    master = start_master(job, [[training(points, 0, 16)], [export(job.output)]])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.error.code == ErrorCode.DISK_FULL, failed.error
    assert str(small_disk) in failed.error.where
    assert list(small_disk.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(mount, check=False, capture_output=True, timeout=200).returncode
    )
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=200)


# --- prediction --------------------------------------------------------------------------------


def predictions(
    points: Path, parts: Path, cuts: tuple[int, ...] = (0, 33, 100)
) -> list[task_pb2.Lease]:
    tasks = []
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        task = lease(task_pb2.PREDICTION, points, start, stop, number=number)
        task.part_path = str(parts / f"{number}.part")
        tasks.append(task)
    return tasks


def predict_job(job: job_pb2.JobSpec, trained: Path) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec()
    spec.CopyFrom(job)
    spec.ClearField("model")
    spec.ClearField("training")
    spec.type, spec.trained_model, spec.output = job_pb2.PREDICT, str(trained), "unused"
    spec.prediction.format = "recordio"
    return spec


def test_each_record_gets_its_prediction_in_order_on_a_machine_without_the_zoo(
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDL_TEST_PREDICTIONS", str(tmp_path / "processed"))
    output, trained_by = exported
    moved = tmp_path / "elsewhere"
    shutil.move(output, moved)
    tasks = predictions(points, tmp_path / "parts")
    master = start_master(predict_job(job, moved), [tasks])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    assert not master.received.ready[0].model.variables
    assert [t.complete.records for t in master.all_tasks() if t.complete] == [33, 67]
    records = [
        recordio.example.decode(record)
        for number in range(2)
        for record in recordio.open_source(str(tmp_path / "parts" / f"{number}.part")).read(0, 100)
    ]
    got = np.stack([record["prediction"] for record in records])
    x, _ = all_points(points)
    model, _ = by_keras(job, trained_by.by_name(), points)
    np.testing.assert_allclose(got, model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["0.part", "1.part"]
    # The model file's own PredictionOutputsProcessor has got them too: minibatches of 8.
    processed = [line.split() for line in (tmp_path / "processed").read_text().splitlines()]
    assert [int(count) for _, count in processed] == [8, 8, 8, 8, 1, *[8] * 8, 3]
    assert {worker for worker, _ in processed} == {"0"}


def test_what_is_kept_of_each_record_lies_beside_its_prediction(
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    output, trained_by = exported
    predict = predict_job(job, output)
    predict.prediction.keep.extend(["label", "never"])
    predict.prediction.postprocess = "argmax"
    master = start_master(predict, [predictions(points, tmp_path / "parts", (7, 33))])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    source = recordio.open_source(str(tmp_path / "parts" / "0.part"))
    records = [recordio.example.decode(record) for record in source.read(0, 100)]
    assert all(sorted(record) == ["label", "prediction"] for record in records)
    x, labels = all_points(points)
    model, _ = by_keras(job, trained_by.by_name(), points)
    wanted = np.argmax(model.predict(x, verbose=0), axis=-1)
    assert [record["label"].tolist() for record in records] == [[n] for n in labels[7:33]]
    assert [record["prediction"].tolist() for record in records] == [[n] for n in wanted[7:33]]


def test_a_feature_with_the_name_of_an_output_cannot_be_kept(
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    predict = predict_job(job, exported[0])
    predict.prediction.keep.append("prediction")
    with recordio.Writer(str(tmp_path / "named.recordio")) as writer:
        for record in recordio.open_source(str(points)).read(0, 8):
            features = dict(recordio.example.decode(record))
            writer.write(recordio.example.encode(features | {"prediction": 1}))
    task = predictions(tmp_path / "named.recordio", tmp_path / "parts", (0, 8))
    master = start_master(predict, [task])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.permanent
    assert "the feature prediction cannot be kept" in failed.error.what


@pytest.mark.parametrize("function", ["doubled", "halved"])
def test_another_number_of_predictions_than_records_is_an_error(
    function: str,
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    shutil.copy(ZOO / "faulty.py", exported[0] / "model_zoo")
    predict = predict_job(job, exported[0])
    predict.model.dataset_fn = f"faulty.{function}"
    master = start_master(predict, [predictions(points, tmp_path / "parts", (0, 40))])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.error.code == ErrorCode.MODEL_CONTRACT
    assert failed.permanent
    assert "40 records" in failed.error.what
    assert "exactly one" in failed.error.what
    assert not list((tmp_path / "parts").iterdir())


def test_an_evaluate_job_reads_the_trained_values_itself(
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
) -> None:
    evaluate = predict_job(job, exported[0])
    evaluate.type = job_pb2.EVALUATE
    evaluate.minibatch_size = 7
    master = start_master(evaluate, evaluations(points))
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    assert not master.received.pulls
    _, wanted = by_keras(job, exported[1].by_name(), points)
    got = metrics_of(master)
    assert got["accuracy"] == pytest.approx(wanted["accuracy"], abs=1e-6)
    assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-4)


def test_a_directory_without_a_trained_model_is_reported(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start, tmp_path: Path
) -> None:
    master = start_master(predict_job(job, tmp_path), [predictions(points, tmp_path)])
    assert start_worker(master).wait() == 1 or master.received.failed
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.MODEL_NOT_FOUND
    assert "trained_model.pb" in failed.error.what


# --- beginning from other values ---------------------------------------------------------------


def test_training_begins_from_the_values_of_an_earlier_one(
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    output, before = exported
    for init_from in (output, output / "model.keras", output / "parameters.safetensors"):
        job.training.init_from = str(init_from)
        master = start_master(job, [[training(points, 0, 8)]])
        master.on_push = lambda m, _: parameters_pb2.ALREADY_APPLIED
        worker = start_worker(master)
        master.wait_for(lambda m=master: m.initialized, "initial values")
        worker.process.leave("seen")
        assert worker.wait() == 0
        reference.assert_close(master.by_name(), before.by_name())


def test_values_of_another_model_are_refused_by_name(
    exported: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
) -> None:
    job.training.init_from = str(exported[0])
    job.model.model_def = "subclassed.Points"
    master = start_master(job, [[training(points, 0, 8)]])
    assert start_worker(master).wait() == 1
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.SHAPE_MISMATCH
    assert "another model" in failed.error.what
    assert "batch_normalization" in failed.error.what
