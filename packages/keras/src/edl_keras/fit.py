"""``elasticdl.fit``: the ``fit`` of a Keras model as a job of several workers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Unpack

import keras
import numpy as np

from edl.plugins.errors import for_python
from edl.plugins.jobs import api
from edl_keras.arguments import KERAS_ARGUMENTS, FitOptions, FitPlan, plan_fit
from edl_keras.errors import wrong_model
from edl_keras.fit_data import ArrayData
from edl_keras.fit_job import FitJob, submission
from edl_keras.model_config import has_call
from edl_keras.model_file import MODEL_DEF, write_zoo
from edl_keras.trained_weights import find_weights, save_weights

MEASURED_RECORDS = 2000
"""The number of training records on which the metrics of an epoch are measured."""


@for_python
def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    *,
    wait: bool = True,
    **options: Unpack[FitOptions],
) -> Any:
    """Train a compiled Keras model in a job; the model has the trained weights afterwards.

    Args:
        model: begins with the weights that it has.
        x: arrays, a table, or a finite pipeline of ``tf.data``.
        y: the labels.
        wait: until the job is over; otherwise the model has its weights after ``FitJob.wait``.
        options: the arguments of Keras's ``fit``, and options of ``elasticdl.train`` such as
            ``num_workers``. Of all workers together, ``batch_size`` examples make one update.

    Returns:
        The loss and the metrics of each epoch; a ``FitJob`` with ``wait=False``.

    Raises:
        EdlError: an argument is wrong, or the job failed or was stopped.
    """
    plan = plan_fit(model, x, y, dict(options))
    with submission(plan.job) as folder:
        _write(plan, folder)
        api.train(**_job_options(plan, folder))
    handle = FitJob(
        plan.job, model, callbacks=plan.callbacks.here, epochs=plan.epochs, verbose=plan.verbose
    )
    return handle.wait() if wait else handle


def _write(plan: FitPlan, folder: Path) -> None:
    """Write all that the job reads."""
    data, model = plan.data, plan.model
    if not model.built and has_call(model):
        _build(model, data)
    rows = np.arange(data.count)
    if plan.shuffle:
        rows = np.random.default_rng(plan.seed).permutation(rows)
    training = folder / "train.recordio"
    compiled = model.get_compile_config()
    has_metrics = compiled.get("metrics") or compiled.get("weighted_metrics")
    measured = {"data": str(training), "records": min(data.count, MEASURED_RECORDS)}
    write_zoo(
        folder / "zoo",
        model,
        keras.tree.map_structure(lambda array: array[:1], data.x),
        plan.layout,
        plan.callbacks.in_job,
        {
            "batch_size": plan.minibatch_size,
            "training_metrics": measured if has_metrics else None,
        },
    )
    save_weights(model, folder)
    data.write(training, plan.layout, rows)
    if plan.validation is not None:
        plan.validation.write(
            folder / "validation.recordio", plan.layout, np.arange(plan.validation.count)
        )


def _build(model: keras.Model, data: ArrayData) -> None:
    """Call a model once, as Keras's own ``fit`` does, so that it has weights."""
    try:
        model(keras.tree.map_structure(lambda array: array[:1], data.x))
    except Exception as error:  # a user's call raises what it likes
        lines = str(error).strip().splitlines()
        raise wrong_model(
            f"the model cannot be called with a row of x: {lines[0] if lines else error!r}",
            "Give arrays that fit its inputs: model(x[:1]) has to work.",
        ) from error


def _job_options(plan: FitPlan, folder: Path) -> dict[str, Any]:
    options = {
        "output": folder / "model",
        "num_workers": 1,
        "embedding_threshold": 0,  # large embeddings are layers of the model afterwards, too
        **{name: value for name, value in plan.job_options.items() if value is not None},
        "model_zoo": folder / "zoo",
        "model_def": MODEL_DEF,
        "data": folder / "train.recordio",
        "init_from": find_weights(folder),
        "num_epochs": plan.epochs,
        "minibatch_size": plan.minibatch_size,
        "seed": plan.seed,
        "shuffle": plan.shuffle,
        "name": plan.job,
        "detach": True,
        "progress": False,  # the handle shows it
    }
    if plan.validation is not None:
        options["validation_data"] = folder / "validation.recordio"
    if plan.callbacks.tensorboard_dir:
        options.setdefault("tensorboard_dir", plan.callbacks.tensorboard_dir)
    return options


def _signature() -> inspect.Signature:
    """Return the arguments by name and default, for ``help(elasticdl.fit)`` and for editors."""
    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("model", either),
        *(inspect.Parameter(name, either, default=None) for name in ("x", "y")),
        *(
            inspect.Parameter(name, keyword, default=default)
            for name, default in {**KERAS_ARGUMENTS, "wait": True, **_JOB_ARGUMENTS}.items()
        ),
        inspect.Parameter("job_options", inspect.Parameter.VAR_KEYWORD),
    ]
    return inspect.Signature(parameters, return_annotation=Any)


_JOB_ARGUMENTS: dict[str, Any] = {
    "num_workers": 1,
    "platform": None,
    "name": None,
    "seed": 0,
    "output": None,
}
"""The most common options of jobs, and their defaults."""

_function: Any = fit
_function.__signature__ = _signature()
