"""Loads the model file of a job as a Keras model that is ready for tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.job import JobDescription, JobType, TrainingSettings
from edl_worker.core.step_engine import ModelSummary
from edl_worker.engines.tensorflow import internals, warm_start, weights
from edl_worker.engines.tensorflow.embedding.lookup_stages import LayerPurpose, layers_for
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables
from edl_worker.engines.tensorflow.keras_model import LoadedKerasModel, summarize
from edl_worker.engines.tensorflow.keras_steps import KerasSteps
from edl_worker.engines.tensorflow.model import ModelFile, load_model_file
from edl_worker.engines.tensorflow.model.adapters.callbacks import restores_best
from edl_worker.engines.tensorflow.replica_steps import ReplicaSteps
from edl_worker.engines.tensorflow.traced_functions import open_size_spec
from edl_worker.model_file.raising_layer import use_producers
from edl_worker.model_file.sample import first_batch
from edl_worker.trained_model import directory as trained_model
from elasticdl.python.common.constants import Mode

use_producers(internals.producer)

PURPOSES = {
    JobType.TRAIN: Mode.TRAINING,
    JobType.EVALUATE: Mode.EVALUATION,
    JobType.PREDICT: Mode.PREDICTION,
}
"""What a model file is loaded for in each type of job."""


def load(job: JobDescription, context: Mapping[str, Any]) -> LoadedKerasModel:
    """Load the model file of a job and check the whole contract; see ``Framework``."""
    tf.get_logger().setLevel("WARNING")
    if job.type is JobType.TRAIN:
        return _load_for_training(job, context)
    return _load_trained(job, context)


def check(job: JobDescription) -> ModelSummary:
    """Check the definitions of a model file, without data; see ``Framework``."""
    options = job.training
    file = load_model_file(job.model, purpose=PURPOSES[job.type], replicated=options.replicated)
    if options.replicated is None and file.model.built:
        _find_tables(file, options)
    return summarize(file)


def _load_trained(job: JobDescription, context: Mapping[str, Any]) -> LoadedKerasModel:
    directory = trained_model.open_directory(job.trained_model)
    options = directory.model_reference(job.model)
    purpose = PURPOSES[job.type]
    with layers_for(LayerPurpose.ANSWERING):
        file = load_model_file(
            options,
            context=context,
            purpose=purpose,
            seed=directory.description.seed,
            saved=directory.read_layer_states(),
        )
        sample = first_batch(file, job, purpose, job.minibatch_size)
        file.build(sample)
    weights.assign(file.model, directory.read_values())
    zoo = Path(options.model_zoo).resolve()
    return LoadedKerasModel(file, zoo, sample, predicts=purpose is Mode.PREDICTION)


def _load_for_training(job: JobDescription, context: Mapping[str, Any]) -> LoadedKerasModel:
    options = job.training
    with layers_for(LayerPurpose.TRAINING):
        file = load_model_file(
            job.model,
            context=context,
            purpose=Mode.TRAINING,
            seed=options.seed,
            replicated=options.replicated,
        )
        sample = first_batch(file, job, Mode.TRAINING, job.minibatch_size)
        file.build(sample, local=options.trains_locally, has_values=bool(options.init_from))
        if options.validates:
            file.check_evaluation()
        # A check of a model file alone knows nothing of the job's validation data.
        is_of_job = bool(context.get("master") or job.output)
        file.resolve_callbacks(validates=options.validates or not is_of_job)
    notes = warm_start.initialize(file.model, options.init_from) if options.init_from else ()
    _spread_seeds(file.model, int(context["worker_id"]))
    tables = _find_tables(file, options)
    if tables is not None and file.custom_train_step is not None:
        raise _tables_with_custom_step(tables)
    if tables is not None and file.replicated:
        raise _tables_with_replicas(tables)
    known: dict[str, Any] = {
        "epochs": options.epochs,
        "export_formats": job.export_formats,
        "input_spec": open_size_spec(sample.features, sample.size),
        "warnings": notes,
    }
    if file.replicated:
        steps: KerasSteps = ReplicaSteps(file, **known)
    else:
        steps = KerasSteps(file, tables, options.precision, **known)
    if tables is not None and options.trains_locally:
        raise _tables_with_local_steps(tables)
    check_best_values(file, tables)
    steps.trace(sample, local=options.trains_locally)
    return LoadedKerasModel(file, Path(job.model.model_zoo).resolve(), sample, steps)


def _find_tables(file: ModelFile, options: TrainingSettings) -> EmbeddingTables | None:
    """Return the embedding tables of a model that has been built; None if it has none.

    Without them its workers hold all values, unless the job says otherwise.

    Raises:
        ContractErrors: the master has to update the model, and cannot run its optimizer.
    """
    is_whole = file.custom_train_step is not None or options.replicated
    found = EmbeddingTables(file, options.seed, 0 if is_whole else options.embedding_threshold)
    if options.replicated is None:
        file.decide_updates(replicated=not found.tables)
    return found if found.tables else None


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


def _tables_with_replicas(tables: EmbeddingTables) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"the model has embedding tables ({', '.join(t.name for t in tables.tables)}), which "
        "parameter servers hold: replicas that train in step have none",
        where="--strategy allreduce",
        remedy="Use --strategy parameter-server, or keras.layers.Embedding, which is kept whole.",
    )


def _spread_seeds(model: keras.Model, worker_id: int) -> None:
    """Let each worker's Dropout draw masks of its own, though all workers build the same model."""
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            state = variable.numpy()
            variable.assign(state + (worker_id * 7919) % 2**31)


def _tables_with_local_steps(tables: EmbeddingTables) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"the model has embedding tables ({', '.join(t.name for t in tables.tables)}), whose "
        "rows cannot be updated in workers: --local-steps is for models without embedding tables",
        where="--local-steps",
        remedy="Leave --local-steps out, or keep keras.layers.Embedding layers whole with "
        "--embedding-threshold 0.",
    )
