"""``elasticdl.train`` with a model of this process, and data in files."""

from __future__ import annotations

import secrets
from types import FunctionType
from typing import Any

import keras

from edl.plugins.errors import usage
from edl.plugins.jobs import api, in_notebook
from edl.plugins.submissions import names
from edl_keras.callbacks import sort_callbacks
from edl_keras.errors import check_platform, kind_of, wrong_model
from edl_keras.fit_job import FitJob, submission
from edl_keras.model_file import MODEL_DEF, write_zoo
from edl_keras.trained_weights import find_weights, save_weights

_COMPILE = ("optimizer", "loss", "metrics", "loss_weights", "weighted_metrics")


def train_model(
    model: Any,
    *,
    dataset_fn: Any = None,
    callbacks: Any = None,
    wait: bool = True,
    progress: bool | None = None,
    **options: Any,
) -> FitJob:
    """Train a model with files of records, and return the handle of the job.

    Args:
        model: a Keras model, compiled or with ``loss`` and ``optimizer`` among the options, or a
            function that returns one.
        dataset_fn: turns the records into features and labels, as in a model file.
        wait: until the job is over; the model then has the trained weights.
        progress: show it; by default only in a notebook.
        options: of ``elasticdl.train``, and of ``compile``.

    Raises:
        Problem: an argument is wrong.
        EdlError: the same, or the job failed.
    """
    model = _make(model, {name: options.pop(name) for name in _COMPILE if name in options})
    if not isinstance(dataset_fn, FunctionType):
        raise usage(
            f"dataset_fn is {kind_of(dataset_fn)}, not a function",
            where="train(dataset_fn=...)",
            remedy="Write a function dataset_fn(dataset, mode) that parses the records, or give"
            " arrays: elasticdl.fit(model, x, y).",
        )
    taken = [each for each in ("model_zoo", "model_def", "init_from", "detach") if each in options]
    if taken:
        raise usage(
            f"{taken[0]} cannot be combined with model",
            where=f"train({taken[0]}=...)",
            remedy="Leave one of them out: model is trained as it is, from its weights on.",
        )
    check_platform(options, "train")
    job = options.pop("name", None) or names.generate(model.name, secrets.token_hex(2))
    shares_files = options.get("platform") in (None, "processes")
    found = sort_callbacks(callbacks, shares_files=shares_files)
    verbose = in_notebook() if progress is None else progress
    with submission(job) as folder:
        values = {"training_metrics": None}
        write_zoo(folder / "zoo", model, None, dataset_fn, found.in_job, values)
        save_weights(model, folder)
        api.train(
            **{
                "output": folder / "model",
                "embedding_threshold": 0,
                **options,
                "model_zoo": folder / "zoo",
                "model_def": MODEL_DEF,
                "init_from": find_weights(folder),
                "name": job,
                "detach": True,
                "progress": verbose and not in_notebook(),
            }
        )
    handle = FitJob(job, model, callbacks=found.here, verbose=verbose)
    if wait:
        handle.wait()
    return handle


def _make(model: Any, compiled: dict[str, Any]) -> keras.Model:
    """Return a compiled model with weights."""
    if not isinstance(model, keras.Model):
        if not callable(model):
            raise usage(
                f"model is {kind_of(model)}, not a Keras model",
                where="train(model=...)",
                remedy="Give a model, or a function without arguments that returns one.",
            )
        model = model()
        if not isinstance(model, keras.Model):
            raise usage(
                f"model() returned {kind_of(model)}, not a Keras model",
                where="train(model=...)",
                remedy="Is a return missing?",
            )
    if compiled:
        model.compile(**compiled)
    if not model.compiled:
        raise wrong_model(
            f"the model {model.name} is not compiled",
            "Give loss and optimizer, or call model.compile first.",
            where="train(model=...)",
        )
    if not model.built:
        raise wrong_model(
            f"the model {model.name} has no weights yet",
            "Begin it with keras.Input, or call it once with a row.",
            where="train(model=...)",
        )
    return model
