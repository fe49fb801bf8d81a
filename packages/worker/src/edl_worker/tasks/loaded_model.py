"""The model of a job, with what computes on it. Importing this imports TensorFlow."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import recordio
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.core.job import DataCacheSettings, JobDescription, JobType
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.tasks import Lease, RecordRange, TaskType
from edl_worker.engines.tensorflow.embedding.lookup_stages import LayerPurpose, layers_for
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables
from edl_worker.engines.tensorflow.internals import uses_weight_decay
from edl_worker.engines.tensorflow.model import ModelFile, load_model_file
from edl_worker.engines.tensorflow.model.adapters.callbacks import restores_best
from edl_worker.engines.tensorflow.model.sample import first_batch
from edl_worker.engines.tensorflow.traced_functions import open_size_spec
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_trainer import GradientTrainer
from edl_worker.engines.tensorflow.training.local_trainer import LocalTrainer
from edl_worker.engines.tensorflow.training.trainer import Trainer
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.tasks import trained_model, weight_files
from edl_worker.tasks.evaluation import Inference
from edl_worker.tasks.export import Exporter
from elasticdl.python.common.constants import Mode
from recordio.storage.range_cache import RangeCache

log = logging.getLogger(__name__)

PURPOSES = {
    JobType.TRAIN: Mode.TRAINING,
    JobType.EVALUATE: Mode.EVALUATION,
    JobType.PREDICT: Mode.PREDICTION,
}
"""What a model file is loaded for in each type of job."""

_KNOWN_FILES = 256
"""Files of records whose tasks a worker remembers something of."""

_MODES = {
    TaskType.TRAINING: Mode.TRAINING,
    TaskType.EVALUATION: Mode.EVALUATION,
    TaskType.PREDICTION: Mode.PREDICTION,
}


@dataclass(frozen=True, slots=True)
class TrainableModel:
    """What a training job needs of its model.

    Attributes:
        tables: embedding tables of the model; None if it has none.
    """

    wire: WireValues
    trainer: Trainer
    exporter: Exporter
    tables: EmbeddingTables | None

    @property
    def arena(self) -> Arena:
        """The weights of the model."""
        return self.wire.arena


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model whose contract has been checked, with its variables and traced functions.

    Attributes:
        zoo: root of the model zoo, for places in error messages.
        sample: the first minibatch of the job's data.
        trainable: None unless the job trains.
    """

    job: JobDescription
    model_file: ModelFile
    zoo: Path
    infer: Inference
    sample: Batch
    trainable: TrainableModel | None = None
    worker_id: int = 0

    def describe(self) -> ModelDescription:
        """The model as the master needs to know it."""
        file = self.model_file
        if self.trainable is None:
            return ModelDescription()
        arena, tables = self.trainable.arena, self.trainable.tables
        return ModelDescription(
            variables=tuple(arena.describe()),
            tables=tuple(tables.describe() if tables else ()),
            reduction=file.reduction,
            callbacks=tuple(type(each).__name__ for each in file.callbacks),
            optimizer_json=json.dumps(describe_optimizers(file, arena), default=_plain_number),
            warnings=self.trainable.exporter.expected_warnings() if self.job.output else (),
        )

    def read(self, records: RecordRange) -> Iterator[list[bytes]]:
        """The records of a range, in order, in blocks; a file that has changed is an error."""
        return read(records, self.job.data_cache)

    def predict(self, batch: Batch) -> Any:
        """The model's outputs for a minibatch, which the model file may process too."""
        outputs = self.infer(batch)
        self.model_file.process_outputs(outputs, self.worker_id)
        return outputs

    @property
    def output_names(self) -> list[str]:
        """Names of a functional model's outputs."""
        return list(getattr(self.model_file.model, "output_names", None) or ())

    def minibatches(self, lease: Lease) -> Iterator[Batch] | None:
        """The minibatches of a task; None if it has no records."""
        mode = _MODES.get(lease.task.type)
        if mode is None:
            return None
        records = lease.records
        return self.model_file.batches(
            self.model_file.blocks(
                records.uri, records.start, records.stop, lambda: self.read(records)
            ),
            mode=mode,
            minibatch_size=self.job.minibatch_size,
            seed=lease.seed,
            skip=lease.skip_minibatches,
            columns=list(lease.records.columns) or None,
        )


def describe_optimizers(file: ModelFile, arena: Arena) -> dict[str, Any]:
    """The optimizer of a model file as the master takes it.

    If its own training step has several, the others are added as ``others``, each with the names
    of its ``variables``.
    """
    own = file.custom_train_step
    if own is None:
        return describe_optimizer(file.optimizer, arena)
    described = describe_optimizer(file.optimizer, arena, own.untrained)
    if own.others:
        described["others"] = [
            {
                **describe_optimizer(other.optimizer, arena),
                "variables": [w.name for w in arena.weights if w.variable.path in other.variables],
            }
            for other in own.others
        ]
    return described


def describe_optimizer(
    optimizer: keras.optimizers.Optimizer, arena: Arena, untrained: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """An optimizer as Keras serializes it, and what Keras leaves out of that.

    ``exclude_from_weight_decay`` is not part of the optimizer's configuration: the names of the
    excluded variables are added as ``excluded_from_weight_decay``.

    Args:
        untrained: paths of further variables to exclude, which the optimizer never updates.
    """
    described: dict[str, Any] = dict(keras.optimizers.serialize(optimizer))
    excluded = [
        weight.name
        for weight in arena.weights
        if weight.trainable
        and (weight.variable.path in untrained or not uses_weight_decay(optimizer, weight.variable))
    ]
    if excluded:
        described["excluded_from_weight_decay"] = excluded
    return described


def read(records: RecordRange, cache: DataCacheSettings) -> Iterator[list[bytes]]:
    """As ``LoadedModel.read``."""
    source = _source(records.uri, records.format, records.version, cache)
    return source.read_blocks(
        records.start,
        records.stop,
        hint=(records.block_first_record, records.block_offset),
        end=records.end_offset,
        exact=True,
    )


@functools.lru_cache(maxsize=_KNOWN_FILES)
def _source(uri: str, format: str, version: str, cache: DataCacheSettings) -> recordio.Source:
    """A file of records, with what earlier tasks found out about this version of it."""
    kept = _range_cache(cache) if cache.folder else None
    return recordio.open_source(uri, format=format or None, version=version, cache=kept)


@functools.cache
def _range_cache(settings: DataCacheSettings) -> RangeCache:
    return RangeCache(settings.folder, settings.gibibytes << 30)


def load(job: JobDescription, context: dict[str, Any]) -> LoadedModel:
    """Load the model file of a job and check the whole contract.

    Raises:
        ContractErrors: everything that is wrong with the model file.
        EdlError: the data or the trained model cannot be read, or do not fit the model.
    """
    tf.get_logger().setLevel("WARNING")
    if job.type is JobType.TRAIN:
        return _load_for_training(job, context)
    return _load_trained(job, context)


def _load_trained(job: JobDescription, context: dict[str, Any]) -> LoadedModel:
    directory = trained_model.open_directory(job.trained_model)
    options = directory.model_reference(job.model)
    purpose = PURPOSES[job.type]
    with layers_for(LayerPurpose.ANSWERING):
        file = load_model_file(options, context=context, purpose=purpose, seed=job.training.seed)
        sample = first_batch(file, job, purpose, job.minibatch_size)
        file.build(sample)
    weight_files.assign(file.model, directory.read_values())
    infer = Inference(file, predicts=purpose is Mode.PREDICTION)
    zoo, worker_id = Path(options.model_zoo).resolve(), int(context["worker_id"])
    return LoadedModel(job, file, zoo, infer, sample, worker_id=worker_id)


def _load_for_training(job: JobDescription, context: dict[str, Any]) -> LoadedModel:
    options = job.training
    method = LocalTrainer if options.trains_locally else GradientTrainer
    with layers_for(LayerPurpose.TRAINING):
        file = load_model_file(job.model, context=context, purpose=Mode.TRAINING, seed=options.seed)
        sample = first_batch(file, job, Mode.TRAINING, job.minibatch_size)
        file.build(sample, local=method.changes_values)
        if options.validates:
            file.check_evaluation()
        # A check without a master knows nothing of the job's validation data.
        file.resolve_callbacks(validates=options.validates or not context.get("master"))
    if options.init_from:
        trained_model.initialize(file.model, options.init_from)
    _spread_seeds(file.model, int(context["worker_id"]))
    own = file.custom_train_step
    threshold = 0 if own is not None else options.embedding_threshold
    found = EmbeddingTables(file, options.seed, threshold)
    tables = found if found.tables else None
    if tables is not None and own is not None:
        raise _tables_with_custom_step(tables)
    wire = WireValues(Arena(file.model, tables), options.precision)
    trainer = method(file, wire, tables)
    check_best_values(file, tables)
    trainer.prime(sample)
    exporter = Exporter(job, file, open_size_spec(sample.features, sample.size))
    return LoadedModel(
        job,
        file,
        Path(job.model.model_zoo).resolve(),
        Inference(file, tables),
        sample,
        TrainableModel(wire, trainer, exporter, tables),
    )


def check_best_values(file: ModelFile, tables: EmbeddingTables | None) -> None:
    """Check that the values of the best epoch can be kept, if a callback wants them back.

    Raises:
        EdlError: MODEL_CONTRACT; they cannot.
    """
    if not any(restores_best(each) for each in file.callbacks):
        return
    if tables is not None:
        what = f"the model has embedding tables ({', '.join(t.name for t in tables.tables)})"
        remedy = "keep keras.layers.Embedding layers whole with --embedding-threshold 0"
    elif file.optimizer.use_ema:
        what = "the optimizer has use_ema=True, whose average becomes the model"
        remedy = "leave use_ema out"
    else:
        return
    raise EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"{what}, so EarlyStopping(restore_best_weights=True) cannot restore the best weights",
        where="callbacks",
        remedy=f"Leave restore_best_weights out, or {remedy}.",
    )


def _tables_with_custom_step(tables: EmbeddingTables) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"the model has embedding tables ({', '.join(t.name for t in tables.tables)}), whose "
        "rows its own train_step has no gradients for",
        where="train_step",
        remedy="Use keras.layers.Embedding, which is kept whole then, or leave train_step out.",
    )


def _spread_seeds(model: keras.Model, worker_id: int) -> None:
    """Let each worker's Dropout draw masks of its own, though all workers build the same model."""
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            state = variable.numpy()
            variable.assign(state + (worker_id * 7919) % 2**31)


def _plain_number(value: Any) -> Any:
    """A number of numpy or TensorFlow in an optimizer's configuration."""
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "numpy"):
        return value.numpy().item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
