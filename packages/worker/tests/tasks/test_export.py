"""What a job exports, over real gRPC, against a single process with Keras."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import tensorflow as tf
from conftest import Master, Start, export, training
from keras_jobs import load
from points_jobs import all_points, by_keras

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, model_pb2, parameters_pb2
from edl_testing.fake_master import FakeMaster
from edl_testing.requirements import do_without
from edl_worker.codec.jobs import decode_job
from edl_worker.core.tasks import ExportInfo
from edl_worker.engines.tensorflow import weights
from edl_worker.trained_model import weight_files


def test_an_output_holds_all_that_the_documents_promise(
    trained: tuple[Path, FakeMaster], job: job_pb2.JobSpec, points: Path
) -> None:
    output, master = trained
    assert sorted(path.name for path in output.iterdir()) == [
        "layer_states.json",
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
    assert told.seed == job.training.seed == 1
    assert (told.parameter_version, told.records_trained, told.epochs) == (13, 100, 1)
    assert dict(told.metrics) == {"accuracy": 0.5}
    assert {"edl", "tensorflow", "keras", "python"} <= set(told.versions)
    copied = sorted(path.name for path in (output / "model_zoo").iterdir())
    # The other models of the zoo are no part of this one; a file that its code reads is.
    assert copied == ["points.names", "points.py"]

    stored = weight_files.read(output / "parameters.safetensors")
    reference.assert_close(dict(stored.arrays), master.by_name())

    x, _ = all_points(points)
    model, _ = by_keras(job, master.by_name(), points)
    wanted = model.predict(x, verbose=0)
    restored = tf.keras.models.load_model(output / "model.keras")
    np.testing.assert_allclose(restored.predict(x, verbose=0), wanted, rtol=1e-5, atol=1e-6)


def test_the_saved_model_serves_without_edl_or_keras(
    trained: tuple[Path, FakeMaster], job: job_pb2.JobSpec, points: Path, tmp_path: Path
) -> None:
    output, master = trained
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
    weights.assign(file.model, weight_files.read(output / "parameters.safetensors"))
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
        *("layer_states.json", "model_zoo", "parameters.safetensors", "trained_model.pb")
    }
    assert {path.name for path in (output / "model_zoo").iterdir()} == {
        "points.names",
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
    loaded = load(decode_job(job), {"worker_id": 0})
    assert loaded.exporter.export(ExportInfo(), str(tmp_path / "trained")) == ()
    back = tf.saved_model.load(tmp_path / "trained" / "saved_model")
    served = back.serve({"x": tf.sparse.from_dense([[0.0, 1.0, 0.0, 0.0]])})
    assert served["prediction"].shape == (1, 3)


def test_the_first_worker_refuses_a_form_that_cannot_be_made(
    job: job_pb2.JobSpec, tmp_path: Path
) -> None:
    zoo = tmp_path / "zoo"
    shutil.copytree(job.model.model_zoo, zoo)
    (zoo / "hashing.py").write_text(
        "from points import *\n"
        "class Hashes(tf.keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        text = tf.strings.as_string(x)\n"
        "        return tf.cast(tf.strings.to_hash_bucket_fast(text, 5), tf.float32)\n"
        "inputs = tf.keras.Input((4,), name='x')\n"
        "model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(Hashes()(inputs)))\n"
    )
    job.model.model_zoo, job.model.model_def, job.model.params = str(zoo), "hashing", ""
    job.export_formats.append("litert")
    load(decode_job(job), {"worker_id": 1}).describe()  # one worker tries it for all
    with pytest.raises(EdlError, match="StringToHashBucketFast") as error:
        load(decode_job(job), {"worker_id": 0}).describe()
    assert error.value.where == "--export litert"


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
        do_without("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=200)


# --- beginning from other values ---------------------------------------------------------------


def test_training_begins_from_the_values_of_an_earlier_one(
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    output, before = finished_job
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
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
) -> None:
    job.training.init_from = str(finished_job[0])
    job.model.model_def = "subclassed.Points"
    master = start_master(job, [[training(points, 0, 8)]])
    assert start_worker(master).wait() == 1
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.SHAPE_MISMATCH
    assert "another model" in failed.error.what
    assert "batch_normalization" in failed.error.what
