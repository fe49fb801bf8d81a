"""``edl train`` against its peers: networks over digits and clicks, one and two workers.

Peers are Keras ``fit``, a plain ``tf.function`` loop, and TensorFlow's ParameterServerStrategy with
two workers and one server, with one minibatch or eight in a closure, whichever was better in the
run. All train the same network on the same records on the cores of this machine. Peers parse clicks
in batches, which is fastest for them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.jobs import peer, train, write_data
from bench.measure import compare
from bench.mnist_local import MODEL

RUNS, PER_CLOSURE = 3, (1, 8)
STRATEGY = "ParameterServerStrategy, two workers"
EPOCHS = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """One network, its records, and who trains it.

    Attributes:
        tool: of ``tools/``, which makes the records.
        options: the model for ``edl train``.
    """

    name: str
    tool: str
    records: int
    batch: int
    options: tuple[str, ...]
    work: Path

    def ours(self, workers: int) -> float:
        return train(
            *(self.work, *self.options),
            data=f"{self.work}/data/train/*.recordio",
            workers=workers,
            batch=self.batch,
            epochs=EPOCHS,
            records=self.records,
        )

    def theirs(self, module: str) -> float:
        return peer(module, self.name, self.work / "data", self.batch, EPOCHS)

    def strategy(self) -> float:
        given = self.name, self.work / "data", self.batch, EPOCHS * self.records // self.batch
        return max(peer("strategy_training", *given, k) for k in PER_CLOSURE)

    def measure(
        self, workers: int, label: str, other: Callable[[], float], target: float | None
    ) -> dict[str, Any]:
        who = "one worker" if workers == 1 else f"{workers} workers"
        return compare(
            f"{self.name}, edl train, {who}",
            "records/s",
            lambda: self.ours(workers),
            label,
            other,
            runs=RUNS,
            target=target,
        ).to_json()


def measures() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        comparison = Comparison("mnist", "digits", 12_800, 64, MODEL, Path(place))
        write_data(comparison.work, comparison.tool, comparison.records)
        found = [comparison.measure(2, STRATEGY, comparison.strategy, 1.2)]
    with tempfile.TemporaryDirectory() as place:
        # One layer for all ids and records in batches, which is fastest; and the usual file.
        for name, of_fit, of_loop in (("clicks", 1.2, None), ("click_fields", 1.8, 0.75)):
            options = "--model-zoo", "bench/models", "--model-def", name
            comparison = Comparison(name, "clicks", 100_000, 512, options, Path(place))
            if not (comparison.work / "data").exists():
                write_data(comparison.work, comparison.tool, comparison.records)
            fit, loop = (partial(comparison.theirs, peer) for peer in ("keras_fit", "plain_loop"))
            found += [
                comparison.measure(1, "Keras fit", fit, of_fit),
                comparison.measure(1, "plain tf.function loop", loop, of_loop),
                comparison.measure(2, STRATEGY, comparison.strategy, 1.5),
            ]
    return found
