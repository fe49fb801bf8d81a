"""How a model whose replicas train in step is loaded for a job."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import keras_jobs
import numpy as np
import pytest
from conftest import ZOO
from google.protobuf import json_format
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_worker.codec.jobs import decode_job
from edl_worker.core.replica_engine import ReplicaEngine
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.model_file.errors import ContractErrors
from edl_worker.tasks.job_check import run_check
from edl_worker.tasks.loaded_model import LoadedModel
from edl_worker.tasks.trial_run import run_trial_at_start

CONTEXT = {"job": "points", "worker_id": 0, "master": ""}
OWN_OPTIMIZER = "def optimizer():\n    return tf.keras.optimizers.SGD(0.1)\n"
TABLE = """
inputs = tf.keras.Input(shape=(4,), name="x")
ids = tf.cast(tf.abs(inputs) * 10, tf.int64)
outputs = tf.keras.layers.Dense(3)(tf.reduce_sum({embedding}(ids), 1))
model = tf.keras.Model(inputs, outputs, name="points")
"""


@pytest.fixture
def replicated(job: job_pb2.JobSpec, zoo: ZooFolder) -> job_pb2.JobSpec:
    job.training.update = job_pb2.REPLICATED
    job.model.model_zoo = str(zoo.root)
    return job


def write_points(zoo: ZooFolder, optimizer: str = "", model: str = "") -> None:
    source = (ZOO / "points.py").read_text()
    if optimizer:
        assert OWN_OPTIMIZER in source
        source = source.replace(OWN_OPTIMIZER, f"def optimizer():\n    return {optimizer}\n")
    if model:
        start, stop = source.index("inputs = "), source.index("\n\ndef dataset_fn")
        source = source[:start] + model + source[stop:]
    zoo.write("points.py", source, imports=False)


def load(job: job_pb2.JobSpec) -> ReplicaEngine:
    loaded = keras_jobs.load(decode_job(job), CONTEXT)
    run_trial_at_start(loaded)
    return cast(ReplicaEngine, loaded.steps)


def values_by_name(steps: ReplicaEngine) -> dict[str, np.ndarray]:
    found = {}
    for group, flat in zip(steps.layout.groups, steps.layout.views(steps.pack()), strict=True):
        parts = np.split(flat, np.cumsum(group.sizes)[:-1])
        found.update(zip((weight.name for weight in group.weights), parts, strict=True))
    return found


def test_the_state_of_the_optimizer_begins_anew_with_values_of_a_trained_model(
    replicated: job_pb2.JobSpec, zoo: ZooFolder, tmp_path: Path
) -> None:
    write_points(zoo, "tf.keras.optimizers.ScheduleFreeAdamW(0.01)")
    first = load(replicated)
    for form in first.export_forms():
        if form.file == "model.keras":
            form.save(tmp_path / form.file)
    replicated.training.init_from = str(tmp_path / "model.keras")
    replicated.training.seed += 1
    trained, found = values_by_name(first), values_by_name(load(replicated))
    np.testing.assert_array_equal(found["dense/kernel"], trained["dense/kernel"])
    assert found["optimizer/schedule_free_adam_w/iteration"] == 0.0
    # It averages from the initial values on.
    momentum = found["optimizer/schedule_free_adam_w/dense_kernel_momentum"]
    np.testing.assert_array_equal(momentum, found["dense/kernel"])


@pytest.mark.parametrize(
    "optimizer", ["LossScaleOptimizer(SGD(0.1), initial_scale=1e38)", "MultiOptimizer(MAP)"]
)
def test_optimizers_that_the_master_lacks_pass_the_trial_run(
    replicated: job_pb2.JobSpec, zoo: ZooFolder, optimizer: str
) -> None:
    for name in ("LossScaleOptimizer", "MultiOptimizer", "SGD"):
        optimizer = optimizer.replace(name, f"tf.keras.optimizers.{name}")
    optimizer = optimizer.replace(
        "MAP", "tf.keras.optimizers.OptimizerMap(tf.keras.optimizers.Adam(0.1))"
    )
    write_points(zoo, optimizer)
    before = values_by_name(load(replicated))
    assert any(name.startswith("optimizer/") for name in before)
    replicated.training.update = job_pb2.ASYNC
    with pytest.raises(ContractErrors, match="Use --strategy allreduce"):
        load(replicated)


def test_embedding_tables_are_refused_and_keras_layers_are_kept_whole(
    replicated: job_pb2.JobSpec, zoo: ZooFolder
) -> None:
    replicated.training.embedding_threshold = 1
    write_points(zoo, model=TABLE.format(embedding="tf.keras.layers.Embedding(100, 3)"))
    assert load(replicated).tables is None
    layer = "from elasticdl.layers import Embedding" + TABLE.format(embedding="Embedding(3)")
    write_points(zoo, model=layer)
    with pytest.raises(EdlError, match="Use --strategy parameter-server") as raised:
        load(replicated)
    assert raised.value.code == ErrorCode.MODEL_CONTRACT


@pytest.fixture
def undecided(replicated: job_pb2.JobSpec) -> job_pb2.JobSpec:
    replicated.training.update = job_pb2.AUTO
    replicated.training.embedding_threshold = 100
    return replicated


def load_model(job: job_pb2.JobSpec) -> LoadedModel:
    loaded = keras_jobs.load(decode_job(job), CONTEXT)
    run_trial_at_start(loaded)
    return loaded


@pytest.mark.parametrize("optimizer", ["SGD(0.1, loss_scale_factor=2.0)", "Nadam(0.1)"])
def test_workers_hold_the_values_of_a_model_without_tables(
    undecided: job_pb2.JobSpec, zoo: ZooFolder, optimizer: str
) -> None:
    write_points(zoo, f"tf.keras.optimizers.{optimizer}")
    loaded = load_model(undecided)
    assert loaded.job.training.replicated is True
    undecided.training.update = job_pb2.REPLICATED
    assert loaded.describe() == load_model(undecided).describe()


def test_the_loss_of_a_model_without_tables_is_scaled_as_in_fit(
    undecided: job_pb2.JobSpec, zoo: ZooFolder
) -> None:
    policy = 'tf.keras.mixed_precision.set_global_policy("mixed_float16")'
    write_points(zoo, model=policy + TABLE.format(embedding="tf.keras.layers.Embedding(32, 3)"))
    described = load_model(undecided).describe()
    undecided.training.update = job_pb2.REPLICATED
    assert described == load_model(undecided).describe()
    assert "LossScaleOptimizer" in described.optimizer_json


@pytest.mark.parametrize("rows", [33, 34])
def test_a_layer_of_the_threshold_is_a_table_on_the_parameter_server(
    undecided: job_pb2.JobSpec, zoo: ZooFolder, rows: int
) -> None:
    layer = f"tf.keras.layers.Embedding({rows}, 3)"
    write_points(zoo, model=TABLE.format(embedding=layer))
    loaded = load_model(undecided)
    assert loaded.job.training.replicated is (rows == 33)
    assert len(loaded.describe().tables) == (rows == 34)
    undecided.training.update = job_pb2.REPLICATED if rows == 33 else job_pb2.ASYNC
    assert loaded.describe() == load_model(undecided).describe()


def test_an_optimizer_that_the_master_lacks_is_refused_with_tables_only(
    undecided: job_pb2.JobSpec, zoo: ZooFolder
) -> None:
    layer = "from elasticdl.layers import Embedding" + TABLE.format(embedding="Embedding(3)")
    write_points(zoo, "tf.keras.optimizers.SGD(0.1, loss_scale_factor=2.0)", model=layer)
    with pytest.raises(ContractErrors, match="asks for loss_scale_factor") as raised:
        load(undecided)
    assert "points.py" in raised.value.errors[0].where


@pytest.mark.parametrize("with_data", [False, True])
def test_a_check_says_which_strategy_a_model_gets(
    undecided: job_pb2.JobSpec, zoo: ZooFolder, tmp_path: Path, *, with_data: bool
) -> None:
    if not with_data:
        del undecided.data[:]
    path = tmp_path / "spec.json"
    for rows, strategy in ((33, "allreduce"), (34, "parameter-server")):
        write_points(zoo, model=TABLE.format(embedding=f"tf.keras.layers.Embedding({rows}, 3)"))
        path.write_text(json_format.MessageToJson(undecided))
        answer = run_check(path, TensorFlow())
        assert (answer["errors"], answer["strategy"]) == ([], strategy)
