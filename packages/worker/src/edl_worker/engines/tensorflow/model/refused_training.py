"""Refuses that a model file trains, evaluates or predicts while it is loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.zoo.module_loaders import find_running_line

_METHODS = (
    *("fit", "evaluate", "predict"),
    *("train_on_batch", "test_on_batch", "predict_on_batch"),
)


@contextmanager
def refuse_training() -> Iterator[None]:
    """Make ``model.fit`` and its like an error while the context lasts.

    Every worker of a job loads the model file, and so does each evaluation and prediction: what
    the file computes then is computed as often, and no part of the job.
    """
    inherited = {name: getattr(keras.Model, name) for name in _METHODS}
    own = {name: vars(keras.Model)[name] for name in _METHODS if name in vars(keras.Model)}
    for name, method in inherited.items():
        setattr(keras.Model, name, _refusal(name, method))
    try:
        yield
    finally:
        for name in _METHODS:
            if name in own:
                setattr(keras.Model, name, own[name])
            else:
                delattr(keras.Model, name)


def _refusal(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        found = find_running_line()
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"the model file calls {name}() while it is loaded, which every worker and every "
            "prediction would do again",
            where="the model file" if found is None else "{}:{}".format(*found),
            remedy=f'Move the call of {name}() under `if __name__ == "__main__":`, or delete it: '
            "edl train, edl evaluate and edl predict call the model themselves.",
        )

    return refuse
