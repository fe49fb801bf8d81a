"""Work on whole arenas: cut into slices, run on an executor, the same result either way."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, Protocol, TypeVar

import numpy as np

from edl_master.core.parameters.layout import Arenas, Array

SLICE = 1 << 19
"""Elements of a slice: some hundred microseconds of work, against some twenty to hand it over."""

T = TypeVar("T")
Job = Callable[[], T]


class Handle(Protocol):
    """A submitted call that can be waited for, such as a ``concurrent.futures.Future``."""

    def result(self) -> Any: ...


class Executor(Protocol):
    """A pool that runs slices in parallel, such as a ``concurrent.futures.Executor``.

    It must be the plane's own: a job that waits for the plane while it occupies the last
    thread would wait forever.
    """

    def submit(self, fn: Callable[[], Any], /) -> Handle: ...


@cache
def kernel(name: str, module: str = "kernels") -> Callable[..., Any]:
    """Return a compiled loop by name; the first call loads numba."""
    function: Callable[..., Any] = getattr(
        importlib.import_module(f"edl_master.core.parameters.{module}"), name
    )
    return function


def run_all(jobs: Sequence[Job[T]], executor: Executor | None) -> list[T]:
    """Run jobs, all but the last on the executor, and return their results in order."""
    if executor is None or len(jobs) <= 1:
        return [job() for job in jobs]
    handles = [executor.submit(job) for job in jobs[:-1]]
    try:
        last = jobs[-1]()
    finally:
        # No caller may continue while a slice is still being written.
        results = [handle.result() for handle in handles]
    return [*results, last]


def slices(start: int, stop: int, step: int = SLICE) -> Iterable[slice]:
    """Cut a range of elements; where the cuts are does not depend on the executor."""
    return (slice(at, min(at + step, stop)) for at in range(start, stop, step))


def read_only(array: Array) -> Array:
    """Return a view that loops only read from.

    Every array that is only read goes to the loops as such a view: to the compiler it is a type
    of its own, and a second type would be compiled in the middle of a push.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def accumulate(
    totals: Arenas, addends: Arenas, weight: float, *, first: bool, executor: Executor | None
) -> None:
    """Add ``weight`` times each of ``addends`` to ``totals``; replace them if it is the first."""
    add = kernel("accumulate")
    run_all(
        [
            partial(add, total[cut], read_only(addends[key])[cut], total.dtype.type(weight), first)
            for key, total in totals.items()
            for cut in slices(0, total.size)
        ],
        executor,
    )


def sum_of_squares(array: Array, executor: Executor | None) -> float:
    """Sum of the squared elements, in double precision."""
    array = read_only(array)
    square: Callable[[Array], float] = kernel("sum_of_squares")
    return sum(run_all([partial(square, array[c]) for c in slices(0, array.size)], executor))


def all_finite(arrays: Iterable[Array], executor: Executor | None) -> bool:
    """Return whether no element is an infinity or not a number."""
    largest = kernel("largest_magnitude")
    jobs: list[Job[bool]] = []
    for array in arrays:
        bits = read_only(array.view(np.dtype(f"u{array.itemsize}")))
        mask = bits.dtype.type(np.iinfo(bits.dtype).max >> 1)
        infinity = np.array(np.inf, array.dtype).view(bits.dtype).item()
        jobs += [
            partial(_all_below, infinity, partial(largest, bits[cut], mask))
            for cut in slices(0, bits.size)
        ]
    return all(run_all(jobs, executor))


def _all_below(bound: int, largest: Callable[[], int]) -> bool:
    return largest() < bound
