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

import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.core.job import WirePrecision
from edl_worker.core.step_engine import StepEngine, StepResult
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.framework_types import leaves, map_leaves
from edl_worker.tasks import evaluation, prediction, task_errors
from edl_worker.tasks.loaded_model import LoadedModel
from edl_worker.tasks.lookahead import Lookahead

log = logging.getLogger(__name__)

_DATA = "the first records of the data"
_TRIAL_EXAMPLES = 8
"""Examples of the trial run at the start of a job, which it should not delay."""


def run_trial(loaded: LoadedModel) -> tuple[str, ...]:
    """Do with the first minibatch what the tasks of a job do with all; nothing changes.

    Returns:
        Warnings of metrics that are no numbers.

    Raises:
        ContractErrors: what the tasks would fail with.
    """
    return _run_trial(loaded, loaded.engine.sample, evaluates=True)


def run_trial_at_start(loaded: LoadedModel) -> None:
    """Run a short trial before the tasks of a job: few examples, and no metrics if it trains.

    Errors that another attempt may not meet are left to the tasks.

    Raises:
        ContractErrors: what every attempt at a task would fail with.
    """
    sample, evaluates = loaded.engine.sample, loaded.steps is None
    try:
        try:
            warnings = _run_trial(loaded, _take_few(sample), evaluates=evaluates)
        except ContractErrors:  # a model may need minibatches of one size
            warnings = _run_trial(loaded, sample, evaluates=evaluates)
        for warning in warnings:
            log.warning(warning)
    except ContractErrors as error:
        if task_errors.is_permanent(error):
            raise
        log.warning("the trial run failed; the tasks will try again: %s", error)


def _run_trial(loaded: LoadedModel, batch: Batch, *, evaluates: bool) -> tuple[str, ...]:
    started = time.monotonic()
    values: Mapping[str, float] = {}
    with loaded.engine.preserve_state():
        try:
            if loaded.steps is None:
                pass
            elif loaded.job.training.trains_locally:
                evaluates = True  # shows what the loss is, and changes nothing
            else:
                _train(loaded, loaded.steps, batch)
            if evaluates and loaded.engine.has_call:
                values = _infer(loaded, batch)
        except EdlError as error:
            raise ContractErrors([error]) from error
    log.debug("trial run with %d examples in %.2f s", batch.size, time.monotonic() - started)
    return tuple(
        f"the metric {name} is {value} for {_DATA}"
        for name, value in values.items()
        if not math.isfinite(value)
    )


def _take_few(batch: Batch) -> Batch:
    """Return some examples of a minibatch; all of them if a part of it is no plain tensor."""
    names = [field.name for field in fields(Batch) if field.name != "size"]
    parts = {name: getattr(batch, name) for name in names}
    tensors = [part for part in leaves(parts) if part is not None]
    if not all(hasattr(each, "__array__") and len(each.shape) for each in tensors):
        return batch
    few = map_leaves(lambda each: None if each is None else each[:_TRIAL_EXAMPLES], parts)
    return replace(batch, size=min(_TRIAL_EXAMPLES, batch.size), **few)


def _train(loaded: LoadedModel, steps: StepEngine, batch: Batch) -> None:
    with _explain_errors(loaded, "the training step raised"):
        step = _compute_gradient(steps, batch)
    if not math.isfinite(step.loss):
        raise _not_finite(loaded, batch, f"the loss is {step.loss}")
    if not step.has_finite_gradient:
        raise _not_finite(loaded, batch, "the gradient has numbers that are not finite")
    # An optimizer of replicas may scale the loss, and expects gradients that are not finite.
    if step.precision is WirePrecision.FLOAT32 and not loaded.job.training.replicated:
        groups = [group for group in steps.layout.groups if group.trainable]
        for group, part in zip(groups, step.gradient, strict=True):
            if not np.isfinite(np.frombuffer(part, group.dtype)).all():
                raise _not_finite(loaded, batch, "the gradient has numbers that are not finite")


def _compute_gradient(steps: StepEngine, batch: Batch) -> StepResult:
    if steps.tables is None:
        return steps.gradient(batch)
    wanted = steps.tables.find_rows(batch, training=True)
    return steps.gradient(batch, wanted, steps.tables.initial_rows_of(wanted))


def _not_finite(loaded: LoadedModel, batch: Batch, what: str) -> EdlError:
    where = ", ".join((loaded.engine.summarize().input_place, *loaded.job.data))
    if error := task_errors.find_not_finite(f"{what} for {_DATA}", where, [batch]):
        return task_errors.name_value(error, loaded.first_records)
    return EdlError(
        ErrorCode.NAN_LOSS,
        f"{what} for {_DATA}, before any training",
        where=", ".join(filter(None, (loaded.engine.summarize().loss_place, *loaded.job.data))),
        remedy="Look for logarithms of zero and divisions by zero in model and loss, and for bad "
        "values in these records: edl data inspect shows them.",
    )


def _infer(loaded: LoadedModel, batch: Batch) -> Mapping[str, float]:
    """Return the values of the metrics; none if there are no labels."""
    infer, steps = loaded.infer, loaded.steps
    rows = infer.rows
    if steps is not None and steps.tables is not None:
        infer.rows = steps.tables.initial_rows_of
    try:
        if batch.labels is None:
            with _explain_errors(loaded, "the model raised"):
                outputs = prediction.select_outputs(
                    infer(batch), loaded.output_names, loaded.job.prediction.postprocess
                )
                prediction.check_kept(outputs, loaded.job.prediction.keep)
                for _ in prediction.rows(outputs, batch.size):
                    pass
            return {}
        with _explain_errors(loaded, "the evaluation raised"):
            once = Lookahead(iter([batch]))
            result = evaluation.evaluate(loaded.engine, infer, once, lambda *_: None)
            values = evaluation.summarize(loaded.engine, result.metric_states).metrics
    finally:
        infer.rows = rows
    if not math.isfinite(values.get("loss", 0.0)):
        raise _not_finite(loaded, batch, f"the loss is {values['loss']}")
    return values


@contextmanager
def _explain_errors(loaded: LoadedModel, doing: str) -> Iterator[None]:
    try:
        yield
    except EdlError:
        raise
    except Exception as error:
        raise task_errors.explain(
            error,
            doing=doing,
            where=loaded.engine.summarize().input_place or loaded.job.model.model_def,
            zoo=loaded.zoo,
            inputs=loaded.engine.summarize().input_shapes,
            batch=loaded.engine.sample,
        ) from error
