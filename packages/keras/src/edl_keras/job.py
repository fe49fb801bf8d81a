"""``elasticdl.job``: the ``fit`` of each model becomes a job while a function runs."""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, overload

import keras

from edl_keras.fit import fit

P = ParamSpec("P")
R = TypeVar("R")


@overload
def job(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def job(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def job(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Return a function in which ``model.fit`` trains in a job; all else runs in this process.

    Args:
        function: calls ``compile`` and ``fit`` as any script does.
        options: of each job, such as ``num_workers``; see ``elasticdl.fit``.
    """
    if function is None:
        return lambda given: job_of(given, options)
    return job_of(function, options)


def job_of(function: Callable[P, R], options: dict[str, Any]) -> Callable[P, R]:
    """Return a function that runs another one with ``fit`` in jobs of these options."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with fitting_in_jobs(options):
            return function(*args, **kwargs)

    return call


@contextmanager
def fitting_in_jobs(options: dict[str, Any]) -> Iterator[None]:
    """Let the ``fit`` of models that this thread calls be a job, within the context."""
    kind: Any = keras.Model
    before = vars(kind).get("fit")
    original = kind.fit
    thread = threading.get_ident()
    signature = inspect.signature(original)
    numbers = itertools.count(1)

    @functools.wraps(original)
    def fit_in_job(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(self, *args, **kwargs)
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        del given["self"]
        number = next(numbers)
        if number > 1 and options.get("name"):
            given["name"] = f"{options['name']}-{number}"
        return fit(self, **{**options, **given})

    kind.fit = fit_in_job
    try:
        yield
    finally:
        if before is None:
            del kind.fit
        else:
            kind.fit = before
