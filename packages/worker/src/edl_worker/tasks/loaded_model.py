"""The model of a job, with what computes on it. Importing this imports TensorFlow."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import recordio
from edl_proto.errors import EdlError
from edl_proto.job_spec import check_complete
from edl_proto.v1 import error_pb2, job_pb2, task_pb2
from edl_worker.embedding.lookup_stages import LayerPurpose, serving
from edl_worker.embedding.tables import EmbeddingTables
from edl_worker.model_file import Batch, ModelFile, ModelReference, load_model_file
from edl_worker.model_file.sample import first_batch
from edl_worker.tasks import trained_model, weight_files
from edl_worker.tasks.evaluation import Inference
from edl_worker.tasks.export import Exporter
from edl_worker.tensorflow_internals import uses_weight_decay
from edl_worker.tensors.tracing import open_size_spec
from edl_worker.training.arena import Arena
from edl_worker.training.trainer import Trainer
from elasticdl.python.common.constants import Mode

log = logging.getLogger(__name__)


_PURPOSES = {
    job_pb2.TRAIN: Mode.TRAINING,
    job_pb2.EVALUATE: Mode.EVALUATION,
    job_pb2.PREDICT: Mode.PREDICTION,
}
_MODES = {
    task_pb2.TRAINING: Mode.TRAINING,
    task_pb2.EVALUATION: Mode.EVALUATION,
    task_pb2.PREDICTION: Mode.PREDICTION,
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model whose contract has been checked, with its variables and traced functions.

    Attributes:
        job: what was submitted.
        zoo: root of the model zoo, for places in error messages.
        tables: embedding tables of the model; None if it has none, or the job does not train.
        arena, trainer, exporter: None unless the job trains.
    """

    job: job_pb2.JobSpec
    model_file: ModelFile
    zoo: Path
    infer: Inference
    tables: EmbeddingTables | None = None
    arena: Arena | None = None
    trainer: Trainer | None = None
    exporter: Exporter | None = None

    def describe(self) -> task_pb2.ModelDescription:
        """The model in the words of ``Tasks.Ready``."""
        file = self.model_file
        description = task_pb2.ModelDescription(
            model_name=str(file.model.name), metric_names=file.metric_names
        )
        if self.arena is not None:
            description.variables.extend(self.arena.describe())
            description.tables.extend(self.tables.describe() if self.tables else ())
            description.reduction = file.reduction
            description.optimizer_json = json.dumps(
                describe_optimizer(file.optimizer, self.arena), default=_plain
            )
        return description

    @property
    def output_names(self) -> list[str]:
        """Names of a functional model's outputs."""
        return list(getattr(self.model_file.model, "output_names", None) or ())

    def pipeline(self, lease: task_pb2.Lease) -> Iterator[Batch] | None:
        """The minibatches of a task; None if it has no records."""
        mode = _MODES.get(lease.task.type)
        if mode is None:
            return None
        return self.model_file.batches(
            lambda: read(lease.records),
            mode=mode,
            minibatch_size=self.job.minibatch_size,
            seed=lease.seed,
            skip=lease.skip_minibatches,
            columns=list(lease.records.columns) or None,
        )


def describe_optimizer(optimizer: keras.optimizers.Optimizer, arena: Arena) -> dict[str, Any]:
    """An optimizer as Keras serializes it, and what Keras leaves out of that.

    ``exclude_from_weight_decay`` of the optimizer is no part of its configuration: the names
    of the variables that it spares stand beside it, as ``excluded_from_weight_decay``.
    """
    described: dict[str, Any] = dict(keras.optimizers.serialize(optimizer))
    spared = [
        weight.name
        for weight in arena.weights
        if weight.trainable and not uses_weight_decay(optimizer, weight.variable)
    ]
    if spared:
        described["excluded_from_weight_decay"] = spared
    return described


def read(records: task_pb2.RecordRange) -> Iterator[list[bytes]]:
    """The records of a range, in order, in blocks; a file that lost some since is an error."""
    source = recordio.open_source(records.uri, format=records.format or None)
    return source.read_blocks(
        records.start,
        records.stop,
        hint=(records.block_first_record, records.block_offset),
        exact=True,
    )


def load(job: job_pb2.JobSpec, context: dict[str, Any]) -> LoadedModel:
    """Load the model file of a job and check the whole contract.

    Raises:
        ContractErrors: everything that is wrong with the model file.
        EdlError: the specification is incomplete, or the data or the trained model cannot be read
            or do not fit the model.
    """
    tf.get_logger().setLevel("WARNING")
    check_complete(job)
    purpose = _PURPOSES[job.type]
    directory = None
    spec = job.model
    if purpose is not Mode.TRAINING:
        directory = trained_model.open_directory(job.trained_model)
        spec = directory.model_spec(job.model)
    seed = job.training.seed
    with serving(LayerPurpose.TRAINING if purpose is Mode.TRAINING else LayerPurpose.ANSWERING):
        reference = ModelReference.from_spec(spec)
        file = load_model_file(reference, context=context, purpose=purpose, seed=seed)
        sample = first_batch(file, job, purpose, job.minibatch_size)
        file.build(sample)
    zoo = Path(spec.model_zoo).resolve()
    if directory is not None:
        weight_files.assign(file.model, directory.read_values())
        return LoadedModel(job, file, zoo, Inference(file))
    if job.training.init_from:
        trained_model.initialize(file.model, job.training.init_from)
    _spread_seeds(file.model, int(context["worker_id"]))
    found = EmbeddingTables(file, seed, job.training.embedding_threshold)
    tables = found if found.tables else None
    arena = Arena(file.model, tables)
    local = job.training.local_steps > 1
    if local and tables is not None:
        raise EdlError(
            error_pb2.MODEL_CONTRACT,
            f"the model has embedding tables ({', '.join(t.name for t in tables.tables)}), whose "
            "rows cannot be updated in workers: --local-steps is for models without",
            where="--local-steps",
            remedy="Leave --local-steps out, or keep keras.layers.Embedding layers whole with "
            "--embedding-threshold 0.",
        )
    precision = job.training.wire_precision
    trainer = Trainer(file, arena, tables, local=local, precision=precision)
    trainer.prime(sample)
    exporter = Exporter(job, file, open_size_spec(sample.features, sample.size))
    infer = Inference(file, tables)
    return LoadedModel(job, file, zoo, infer, tables, arena, trainer, exporter)


def _spread_seeds(model: keras.Model, worker_id: int) -> None:
    """Let each worker's Dropout draw masks of its own, though all models were built alike."""
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            state = variable.numpy()
            variable.assign(state + (worker_id * 7919) % 2**31)


def _plain(value: Any) -> Any:
    """Numbers of numpy and TensorFlow in an optimizer's configuration."""
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "numpy"):
        return value.numpy().item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
