"""The trial run of a job: everything that its tasks will do, once, before the first task.

It finds what tracing alone does not show: a loss that is no number on real records, texts where
the model needs numbers, a model that training cannot change.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.core.job import WirePrecision
from edl_worker.engines.tensorflow.training.trainer import StepResult
from edl_worker.model_file.errors import ContractErrors
from edl_worker.tasks import evaluation, prediction, task_errors
from edl_worker.tasks.loaded_model import LoadedModel, TrainableModel
from edl_worker.tasks.lookahead import Lookahead

log = logging.getLogger(__name__)

_DATA = "the first records of the data"
_FEW = 8
"""Examples of the trial run at the start of a job, which it should not delay."""


def run_trial(loaded: LoadedModel) -> tuple[str, ...]:
    """Do with the first minibatch what the tasks of a job will do with all; nothing changes.

    Returns:
        Warnings of metrics that are no numbers.

    Raises:
        ContractErrors: what the tasks would fail with.
    """
    return _run_trial(loaded, loaded.sample, evaluates=True)


def run_trial_at_start(loaded: LoadedModel) -> None:
    """As ``run_trial``, for a job: with few examples, and what trains only trains.

    What another attempt may not meet is left to the tasks.

    Raises:
        ContractErrors: what every attempt at a task would fail with.
    """
    try:
        try:
            warnings = _run_trial(loaded, _few(loaded.sample), evaluates=loaded.trainable is None)
        except ContractErrors:  # a model may need minibatches of one size
            warnings = _run_trial(loaded, loaded.sample, evaluates=loaded.trainable is None)
        for warning in warnings:
            log.warning(warning)
    except ContractErrors as error:
        if task_errors.is_permanent(error):
            raise
        log.warning("the trial run failed; the tasks will try again: %s", error)


def _run_trial(loaded: LoadedModel, batch: Batch, *, evaluates: bool) -> tuple[str, ...]:
    started = time.monotonic()
    values: Mapping[str, float] = {}
    with _unchanged(loaded.model_file.model):
        try:
            if loaded.trainable is None:
                pass
            elif loaded.trainable.trainer.changes_values:
                evaluates = True  # shows what the loss is, and changes nothing
            else:
                _train(loaded, loaded.trainable, batch)
            if evaluates and loaded.model_file.has_call:
                values = _infer(loaded, batch)
        except EdlError as error:
            raise ContractErrors([error]) from error
    log.debug("trial run with %d examples in %.2f s", batch.size, time.monotonic() - started)
    return tuple(
        f"the metric {name} is {value} for {_DATA}"
        for name, value in values.items()
        if not math.isfinite(value)
    )


def _few(batch: Batch) -> Batch:
    """Some examples of a minibatch; all of them if a part of it is no plain tensor."""
    names = [field.name for field in fields(Batch) if field.name != "size"]
    parts = {name: getattr(batch, name) for name in names}
    tensors = [part for part in tf.nest.flatten(parts) if part is not None]
    if not all(isinstance(each, tf.Tensor) and each.shape.rank for each in tensors):
        return batch
    few = tf.nest.map_structure(lambda each: None if each is None else each[:_FEW], parts)
    return replace(batch, size=min(_FEW, batch.size), **few)


@contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """Undo what steps do to variables that are not sent, such as the states of Dropout."""
    before = [(v, v.numpy()) for v in model.variables if not v.dtype.startswith("float")]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


def _train(loaded: LoadedModel, trainable: TrainableModel, batch: Batch) -> None:
    with _explained(loaded, "the training step raised"):
        step = _step(trainable, batch)
    if not step.is_finite:
        raise _not_finite(loaded, batch, f"the loss is {step.loss}")
    if step.precision is WirePrecision.FLOAT32:
        groups = [group for group in trainable.arena.groups if group.trainable]
        for group, part in zip(groups, step.gradient, strict=True):
            if not np.isfinite(np.frombuffer(part, group.dtype)).all():
                raise _not_finite(loaded, batch, "the gradient has numbers that are not finite")


def _step(trainable: TrainableModel, batch: Batch) -> StepResult:
    trainer, tables = trainable.trainer, trainable.tables
    trainer.begin_push(version=0)
    if tables is None:
        trainer.add(batch)
    else:
        wanted = tables.wanted(batch, training=True)
        trainer.add(batch, wanted, tables.initial_rows_of(wanted))
    return trainer.take()


def _not_finite(loaded: LoadedModel, batch: Batch, what: str) -> EdlError:
    if task_errors.has_bad_weights(batch):
        return EdlError(
            ErrorCode.NAN_LOSS,
            f"{what} for {_DATA}: the sample weights are not finite",
            where=", ".join((loaded.model_file.input_place, *loaded.job.data)),
            remedy=task_errors.FINITE_WEIGHTS,
        )
    return EdlError(
        ErrorCode.NAN_LOSS,
        f"{what} for {_DATA}, before any training",
        where=", ".join(filter(None, (loaded.model_file.loss_place, *loaded.job.data))),
        remedy="Look for logarithms of zero and divisions by zero in model and loss, and for bad "
        "values in these records: edl data inspect shows them.",
    )


def _infer(loaded: LoadedModel, batch: Batch) -> Mapping[str, float]:
    """The values of the metrics; none if there are no labels."""
    infer, trainable = loaded.infer, loaded.trainable
    rows = infer.rows
    if trainable is not None and trainable.tables is not None:
        infer.rows = trainable.tables.initial_rows_of
    try:
        if batch.labels is None:
            with _explained(loaded, "the model raised"):
                outputs = prediction.written_outputs(
                    infer(batch), loaded.output_names, loaded.job.prediction.postprocess
                )
                prediction.check_kept(outputs, loaded.job.prediction.keep)
                for _ in prediction.rows(outputs, batch.size):
                    pass
            return {}
        with _explained(loaded, "the evaluation raised"):
            once = Lookahead(iter([batch]))
            result = evaluation.evaluate(loaded.model_file, infer, once, lambda *_: None)
            values = evaluation.summarize(loaded.model_file, result.metric_states).metrics
    finally:
        infer.rows = rows
    if not math.isfinite(values.get("loss", 0.0)):
        raise _not_finite(loaded, batch, f"the loss is {values['loss']}")
    return values


@contextmanager
def _explained(loaded: LoadedModel, doing: str) -> Iterator[None]:
    try:
        yield
    except EdlError:
        raise
    except Exception as error:
        raise task_errors.explain(
            error,
            doing=doing,
            where=loaded.job.model.model_def,
            zoo=loaded.zoo,
            model=loaded.model_file.model,
            batch=loaded.sample,
        ) from error
