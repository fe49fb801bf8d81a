"""What stale gradients cost in quality: the loss that each way of updating leaves, by seed.

It plays the order of updates of equal workers in one process, so that nothing but this order
differs: a small network of the digits with Adam, in numpy. ``bench.modes`` trains with real jobs.

``EDL_BENCH_SEEDS`` is the number of seeds (10), ``EDL_BENCH_EPOCHS`` that of epochs (10).
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.measure import ROOT, Measure

sys.path.insert(0, str(ROOT / "tools"))

import digits

SEEDS = int(os.environ.get("EDL_BENCH_SEEDS", "10"))
EPOCHS = int(os.environ.get("EDL_BENCH_EPOCHS", "10"))
TRAINED, BATCH, HIDDEN, RATE = 1437, 32, 64, 0.003

Array = npt.NDArray[np.float64]
Batches = Iterator[tuple[Array, npt.NDArray[np.int64]]]


class _Adam:
    def __init__(self, values: Array) -> None:
        self._mean, self._square, self._step = np.zeros_like(values), np.zeros_like(values), 0

    def apply(self, values: Array, gradient: Array) -> None:
        self._step += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        rate = RATE * np.sqrt(1 - 0.999**self._step) / (1 - 0.9**self._step)
        values -= rate * self._mean / (np.sqrt(self._square) + 1e-7)


class Problem:
    """The digits and a network of one hidden layer, whose numbers are one array."""

    def __init__(self, seed: int) -> None:
        images, labels = digits.load()
        self._x = images.reshape(len(images), -1).astype(np.float64) / 255
        self._y = labels
        self._draw = np.random.default_rng(seed)
        inputs, outputs = self._x.shape[1], int(labels.max()) + 1
        self._shapes = ((inputs, HIDDEN), (HIDDEN,), (HIDDEN, outputs), (outputs,))
        spread = [np.sqrt(6 / sum(shape)) if len(shape) == 2 else 0.0 for shape in self._shapes]
        parts = zip(self._shapes, spread, strict=True)
        self.values = np.concatenate([self._draw.uniform(-s, s, np.prod(n)) for n, s in parts])

    def batches(self, size: int) -> Batches:
        """Yield the minibatches of all epochs, each epoch in an order of its own."""
        for _ in range(EPOCHS):
            order = self._draw.permutation(TRAINED)
            for first in range(0, TRAINED, size):
                some = order[first : first + size]
                yield self._x[some], self._y[some]

    def _split(self, values: Array) -> list[Array]:
        ends = np.cumsum([np.prod(shape) for shape in self._shapes])[:-1]
        parts = zip(np.split(values, ends), self._shapes, strict=True)
        return [part.reshape(shape) for part, shape in parts]

    def gradient(self, values: Array, x: Array, y: npt.NDArray[np.int64]) -> Array:
        """Return the gradient of the mean cross-entropy of a minibatch."""
        w1, b1, w2, b2 = self._split(values)
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        error = np.exp(logits - logits.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        back = (error @ w2.T) * (hidden > 0)
        parts = (x.T @ back, back.sum(0), hidden.T @ error, error.sum(0))
        return np.concatenate([part.ravel() for part in parts])

    def validation_loss(self) -> float:
        """Return the mean cross-entropy of the digits that were not trained."""
        w1, b1, w2, b2 = self._split(self.values)
        logits = np.maximum(self._x[TRAINED:] @ w1 + b1, 0) @ w2 + b2
        top = logits.max(1)
        norm = top + np.log(np.exp(logits - top[:, None]).sum(1))
        return float(np.mean(norm - logits[np.arange(len(logits)), self._y[TRAINED:]]))


def train_stale(problem: Problem, staleness: int) -> None:
    """Update with gradients that each miss so many updates."""
    rule, waiting = _Adam(problem.values), list[Array]()
    for x, y in problem.batches(BATCH):
        waiting.append(problem.gradient(problem.values, x, y))
        if len(waiting) > staleness:
            rule.apply(problem.values, waiting.pop(0))
    for gradient in waiting:
        rule.apply(problem.values, gradient)


def train_sync(problem: Problem, workers: int) -> None:
    """Update with the mean of the workers' gradients: with one larger minibatch."""
    rule = _Adam(problem.values)
    for x, y in problem.batches(workers * BATCH):
        rule.apply(problem.values, problem.gradient(problem.values, x, y))


def train_locally(problem: Problem, workers: int, steps: int) -> None:
    """Add the differences that workers make with so many steps of their own."""
    own = [problem.values.copy() for _ in range(workers)]
    rules = [_Adam(values) for values in own]
    pulled = [problem.values.copy() for _ in range(workers)]
    for number, (x, y) in enumerate(problem.batches(BATCH)):
        worker, done = number % workers, number // workers + 1
        rules[worker].apply(own[worker], problem.gradient(own[worker], x, y))
        if done % steps == 0:
            problem.values += own[worker] - pulled[worker]
            own[worker][:] = pulled[worker][:] = problem.values
    for values, start in zip(own, pulled, strict=True):
        problem.values += values - start


PLAIN = "one worker: no staleness"
WAYS: dict[str, Callable[[Problem], None]] = {
    PLAIN: lambda problem: train_stale(problem, 0),
    "one worker, --overlap: 1": lambda problem: train_stale(problem, 1),
    "two workers, async: 1": lambda problem: train_stale(problem, 1),
    "two workers, --overlap: 3": lambda problem: train_stale(problem, 3),
    "four workers, async: 3": lambda problem: train_stale(problem, 3),
    "four workers, --overlap: 7": lambda problem: train_stale(problem, 7),
    "two workers, --update sync": lambda problem: train_sync(problem, 2),
    "four workers, --update sync": lambda problem: train_sync(problem, 4),
    "one worker, --local-steps 16": lambda problem: train_locally(problem, 1, 16),
    "two workers, --local-steps 16": lambda problem: train_locally(problem, 2, 16),
    "four workers, --local-steps 16": lambda problem: train_locally(problem, 4, 16),
}


def measures() -> list[dict[str, Any]]:
    """Validation loss of each way next to that without staleness."""
    found: dict[str, list[float]] = {}
    for way, train in WAYS.items():
        for seed in range(SEEDS):
            problem = Problem(seed)
            train(problem)
            found.setdefault(way, []).append(problem.validation_loss())
        mean, spread = statistics.mean(found[way]), statistics.stdev(found[way])
        print(f"  {way}: {mean:.3f} ± {spread:.3f}", file=sys.stderr, flush=True)
    return [
        Measure(
            name=f"validation loss, {way}",
            value=statistics.median(losses),
            unit="",
            peer=PLAIN,
            peer_value=statistics.median(found[PLAIN]),
            ratio=statistics.median(a / b for a, b in zip(losses, found[PLAIN], strict=True)),
            target=None,
            runs=list(zip(losses, found[PLAIN], strict=True)),
        ).to_json()
        for way, losses in found.items()
    ]
