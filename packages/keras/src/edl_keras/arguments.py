"""The arguments of ``fit``, checked before anything is written."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import keras
import numpy as np

from edl.plugins.options import BY_NAME
from edl.plugins.submissions import names
from edl.plugins.texts import did_you_mean
from edl_keras.callbacks import SortedCallbacks, check_monitors, sort_callbacks
from edl_keras.errors import check_platform, kind_of, wrong_argument, wrong_model
from edl_keras.fit_checks import check_fit, check_source, count_classes
from edl_keras.fit_data import (
    ArrayData,
    fit_labels,
    read_data,
    read_validation_data,
    same_layout,
    split_data,
    weigh_classes,
    with_unit_weights,
)
from edl_keras.records import RecordLayout
from edl_keras.value_checks import check_values

_BATCH_SIZE = 32

_OF_FIT = {
    "callbacks": "callbacks",
    "data": "x",
    "eval_metrics_fn": "metrics in model.compile",
    "init_from": "the weights that the model has",
    "loss": "loss in model.compile",
    "minibatch_size": "batch_size",
    "model_def": "model",
    "model_zoo": "model",
    "num_epochs": "epochs",
    "optimizer": "optimizer in model.compile",
    "params": "model",
    "validation_data": "validation_data",
}
"""Options of ``elasticdl.train`` that ``fit`` sets, and what they are made of."""
_NOT_TAKEN = {
    "detach": "Leave it out: Ctrl-C leaves a job running.",
    "dataset_fn": "Prepare the arrays before.",
    "dry_run": "Leave it out.",
    "feature_columns": "Prepare the arrays before.",
    "initial_epoch": "Leave it out: the job counts its epochs from 1.",
    "input_fn": "Prepare the arrays before.",
    "label_columns": "Prepare the arrays before.",
    "steps_per_epoch": "Leave it out: an epoch is one pass over the data. Give fewer rows.",
    "timeout": "Leave it out, and end the job with Ctrl-C and edl stop.",
    "tracker": "Leave it out: edl track sends the job afterwards.",
    "validation_freq": "Leave it out: the job validates after every epoch.",
    "validation_steps": "Leave it out, and give fewer rows of validation data.",
    "window": "Use elasticdl.train for streams.",
}
"""Arguments of Keras's ``fit`` and options of jobs that cannot be used, and what to do."""


class FitOptions(TypedDict, total=False):
    """The arguments of ``fit`` that are named as in Keras, and the most common ones of jobs."""

    batch_size: int | None
    epochs: int
    verbose: str | int
    callbacks: Any
    validation_split: float
    validation_data: Any
    shuffle: bool
    class_weight: Mapping[int, float] | None
    sample_weight: Any
    validation_batch_size: int | None
    num_workers: int | str
    platform: str
    name: str
    seed: int
    output: str | Path


@dataclass(frozen=True, slots=True)
class FitPlan:
    """The checked arguments of one call."""

    model: keras.Model
    data: ArrayData
    validation: ArrayData | None
    layout: RecordLayout
    callbacks: SortedCallbacks
    epochs: int
    batch_size: int
    shuffle: bool
    seed: int
    job: str
    verbose: bool
    job_options: dict[str, Any]

    @property
    def minibatch_size(self) -> int:
        """The part of a batch that one worker computes."""
        workers = str(self.job_options.get("num_workers") or 1).partition(":")[0]
        return max(1, math.ceil(self.batch_size / (int(workers) if workers.isdigit() else 1)))


KERAS_ARGUMENTS: dict[str, Any] = {
    "batch_size": None,
    "epochs": 1,
    "verbose": "auto",
    "callbacks": None,
    "validation_split": 0.0,
    "validation_data": None,
    "shuffle": True,
    "class_weight": None,
    "sample_weight": None,
    "validation_batch_size": None,
}
"""The arguments that are those of Keras, and their defaults."""


def plan_fit(model: keras.Model, x: Any, y: Any, options: dict[str, Any]) -> FitPlan:
    """Check all arguments before anything is written."""
    _check_model(model)
    own = {name: options.get(name, default) for name, default in KERAS_ARGUMENTS.items()}
    rest = {name: value for name, value in options.items() if name not in own}
    check_source(x, rest)
    _check_options(rest)
    rest = {name: value for name, value in rest.items() if name not in _NOT_TAKEN}
    if x is None:
        raise wrong_argument("x", "there is no data", "Give arrays: fit(model, x, y).")
    data = fit_labels(read_data(x, y, own["sample_weight"]), model)
    if own["batch_size"] is not None and data.batch_size is not None:
        raise wrong_argument(
            "batch_size", "x is a pipeline, which has batches already", "Leave batch_size out."
        )
    if data.y is None and not _trains_without_labels(model):
        raise wrong_argument("y", "there are no labels", "Give y; an autoencoder has y=x.")
    validation = None
    if own["validation_data"] is not None:
        validation = fit_labels(read_validation_data(own["validation_data"]), model)
    else:
        data, validation = split_data(data, own["validation_split"])
    check_fit(model, data, x)
    check_values(model, data)
    if validation is not None:
        check_values(model, validation, "validation_data")
    if own["class_weight"]:
        data = weigh_classes(data, own["class_weight"], count_classes(model))
    if validation is not None and (data.weights is None) != (validation.weights is None):
        data, validation = with_unit_weights(data), with_unit_weights(validation)
    layout = data.layout()
    if validation is not None:
        layout = same_layout(layout, validation.layout())
    check_platform(rest, "fit")
    platform = str(rest.get("platform") or "processes")
    epochs = _positive("epochs", own["epochs"])
    given = data.batch_size or _BATCH_SIZE if own["batch_size"] is None else own["batch_size"]
    batch_size = _positive("batch_size", given)
    _check_workers(rest.get("num_workers"), batch_size, data.count)
    if validation is None:
        check_monitors(own["callbacks"])
    return FitPlan(
        model=model,
        data=data,
        validation=validation,
        layout=layout,
        callbacks=sort_callbacks(own["callbacks"], shares_files=platform == "processes"),
        epochs=epochs,
        batch_size=batch_size,
        shuffle=bool(own["shuffle"]),
        seed=int(rest.pop("seed", 0) or 0),
        job=str(rest.pop("name", "") or names.generate(model.name, secrets.token_hex(2))),
        verbose=own["verbose"] not in (0, "0"),
        job_options=rest,
    )


def _check_model(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise wrong_argument(
            "model", f"model is {kind_of(model)}, not a Keras model", "Give a keras.Model."
        )
    if not model.compiled:
        raise wrong_model(
            f"the model {model.name} is not compiled",
            "Call model.compile(optimizer=..., loss=...) first.",
        )


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name in _NOT_TAKEN and value and (name, value) != ("validation_freq", 1):
            raise wrong_argument(name, f"fit takes no {name}", _NOT_TAKEN[name])
        if name in _OF_FIT:
            raise wrong_argument(name, f"fit sets {name} itself", f"It is made of {_OF_FIT[name]}.")
        if name not in BY_NAME and name not in _NOT_TAKEN:
            known = [*KERAS_ARGUMENTS, *BY_NAME]
            raise wrong_argument(
                name,
                f"fit has no argument {name}",
                did_you_mean(name, known) or "help(elasticdl.fit) lists the arguments.",
            )


def _check_workers(workers: Any, batch_size: int, rows: int) -> None:
    """Check that each worker gets an example of each batch."""
    most = str(workers or 1).rpartition(":")[2]
    if most.isdigit() and int(most) > min(batch_size, rows):
        few, least = (rows, "rows") if rows < batch_size else (batch_size, "examples in a batch")
        raise wrong_argument(
            "num_workers",
            f"num_workers is {workers}, and there are {few} {least}: they are divided among the "
            "workers",
            f"Give {few} workers at most"
            + ("." if rows < batch_size else f", or batch_size={most} or more."),
        )


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or value < 1:
        raise wrong_argument(name, f"{name} is {value!r}", "Give a whole number from 1 on.")
    return int(value)


def _trains_without_labels(model: keras.Model) -> bool:
    return type(model).train_step is not keras.Model.train_step
