"""How well the zoo's models learn at their defaults: ``./dev zoo_quality [MODEL...]``.

Each model trains from several seeds, with one worker and with three, asynchronously and
synchronously. A run that ends below the model's bound is a failure: the bound is far above chance.

    ./dev zoo_quality                                  all models, ten seeds: hours on two cores
    ./dev zoo_quality mnist.mnist_spec --seeds 3
    ./dev zoo_quality --minutes 30                     as many seeds of all models as fit
    ./dev zoo_quality --results FILE --minutes 30      the same, and continue from earlier results

``bench/results/zoo_quality.jsonl`` has what was measured so far, with the commit of each run.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import census
import clicks
import numpy as np
from results_file import ResultsFile

import digits
import recordio.example

ROOT = Path(__file__).resolve().parent.parent
EDL = str(Path(sys.executable).parent / "edl")
MODES = tuple((workers, update) for workers in (1, 3) for update in ("async", "sync"))

Write = Callable[[Path], None]


@dataclass(frozen=True)
class Trial:
    """A model with data that it can learn.

    Attributes:
        write: writes the data into a new folder, below ``train`` and ``test``.
        epochs: how often the model sees the former.
        metric: of the held-out records, after training.
        bound: the worst value of ``metric`` that counts as learned.
        chance: the value of ``metric`` for a model that has learned nothing.
        options: further options of ``edl train``; none of them changes how the model learns.
    """

    write: Write
    epochs: int
    metric: str
    bound: float
    chance: float
    options: tuple[str, ...] = ()

    def has_learned(self, value: float) -> bool:
        """Tell whether a value is on the better side of the bound."""
        return value >= self.bound if self.bound > self.chance else value <= self.bound


def _held_out(examples: Callable[[], list[bytes]]) -> Write:
    """Writes records, of which the last fifth is for the test."""

    def write(place: Path) -> None:
        content = examples()
        cut = len(content) * 4 // 5
        digits.write(place / "train", content[:cut], 3, "part")
        digits.write(place / "test", content[cut:], 1, "part")

    return write


def _table(name: str) -> Write:
    """Converts a table that comes with scikit-learn, as a user would: with its schema."""

    def write(place: Path) -> None:
        from sklearn import datasets

        found = getattr(datasets, name)()
        table = place.parent / f"{place.name}.csv"
        with table.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*(f"x{column}" for column in range(found.data.shape[1])), "target"])
            for row, target in zip(found.data, found.target, strict=True):
                rows.writerow([*row, target])
        subprocess.run(
            [
                *(EDL, "data", "convert", str(table), "--label", "target"),
                *("--split", "0.8", "--to", str(place), "--quiet"),
            ],
            stdout=subprocess.DEVNULL,
            check=True,
        )

    return write


def _digits() -> list[bytes]:
    return digits.records(*digits.load())


def _coloured_digits() -> list[bytes]:
    images, labels = digits.load()
    return digits.records(digits.colour(images), labels)


def _salaries() -> list[bytes]:
    """Role and age determine the salary, whose standard deviation is 0.87."""
    random = np.random.default_rng(2)
    roles = (b"clerk", b"cook", b"pilot")
    return [
        recordio.example.encode(
            {
                "role": [roles[role]],
                "age": np.array([age], np.float32),
                "salary": np.array([role + age], np.float32),
            }
        )
        for role, age in zip(random.integers(0, 3, 2000), random.random(2000), strict=True)
    ]


def _sentences() -> list[bytes]:
    random = np.random.default_rng(3)
    words = (("awful", "cold", "rude", "late"), ("lovely", "warm", "kind", "quick"))
    content = []
    for kind in random.integers(0, 2, 2000):
        drawn = [*random.choice(words[kind], 2), *random.choice(["the", "a", "it", "was"], 6)]
        text = " ".join(random.permutation(drawn)).encode()
        content.append(recordio.example.encode({"text": [text], "kind": np.array([kind])}))
    return content


_MNIST = Trial(_held_out(_digits), epochs=3, metric="accuracy", bound=0.85, chance=0.1)
_CIFAR10 = Trial(_held_out(_coloured_digits), epochs=6, metric="accuracy", bound=0.7, chance=0.1)
_REGRESSOR = Trial(
    *(_held_out(_salaries), 5, "root_mean_squared_error", 0.35, 0.87),
    options=("--input-fn", "sqlflow.elasticdl_input_function"),
)
# What the best possible model reaches with the clicks is about 0.75; what numbers alone give, 0.5.
_CLICKS = Trial(
    _held_out(lambda: clicks.records(20_000)), epochs=3, metric="auc", bound=0.6, chance=0.5
)
_CENSUS = Trial(
    _held_out(lambda: census.records(20_000)), epochs=3, metric="auc", bound=0.6, chance=0.5
)
_PIXELS = Trial(_table("load_digits"), epochs=5, metric="accuracy", bound=0.85, chance=0.1)
# Linear regression is at 54 or so, the mean of the labels at their deviation.
_DIABETES = Trial(
    _table("load_diabetes"), epochs=10, metric="root_mean_squared_error", bound=65, chance=77
)
# Rows that are all reproduced as the mean have an error of 1.
_CELLS = Trial(
    _table("load_breast_cancer"), epochs=10, metric="reconstruction_error", bound=0.5, chance=1.0
)

ZOO = {
    "mnist.mnist_functional_api": _MNIST,
    "mnist.mnist_subclass": _MNIST,
    "mnist.mnist_spec": _MNIST,
    "mnist.mnist_input_fn": _MNIST,
    # A generator that always draws the mean of all digits is at 0.24.
    "mnist.mnist_gan": Trial(
        _held_out(_digits), epochs=8, metric="distance", bound=0.15, chance=0.24
    ),
    "cifar10.cifar10_functional_api": _CIFAR10,
    "cifar10.cifar10_subclass": _CIFAR10,
    "regressor.DNN": _REGRESSOR,
    "regressor.wide_and_deep.MagicalWAD": _REGRESSOR,
    "regressor.deepfm.DeepFM": _DIABETES,
    "classifier.DNN": _PIXELS,
    "classifier.wide_and_deep.WideAndDeep": _PIXELS,
    "classifier.deepfm.DeepFM": _PIXELS,
    "anomaly.Autoencoder": _CELLS,
    "text.sentiment": Trial(_held_out(_sentences), epochs=3, metric="auc", bound=0.95, chance=0.5),
    "ctr.criteo_deepfm": _CLICKS,
    "ctr.criteo_wide_and_deep": _CLICKS,
    "ctr.census_deepfm": _CENSUS,
    "ctr.census_wide_and_deep": _CENSUS,
}


@dataclass(frozen=True)
class Run:
    """One training job."""

    model: str
    workers: int
    update: str
    seed: int


def _value(run: Run, place: Path) -> float:
    """Train, and return the metric; NaN if the job failed."""
    trial = ZOO[run.model]
    name = f"{run.model}-{run.workers}-{run.update}-{run.seed}".lower().replace("_", "-")
    data = place / "data" / run.model
    done = subprocess.run(
        [
            *(EDL, "train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", run.model),
            *("--data", f"{data}/train", "--validation-data", f"{data}/test", "-o", "json"),
            *("--num-workers", str(run.workers), "--update", run.update),
            *("--num-epochs", str(trial.epochs), "--seed", str(run.seed), *trial.options),
            *("--name", name.replace(".", "-"), "--output", str(place / name)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "EDL_HOME": str(place / "home"), "TF_CPP_MIN_LOG_LEVEL": "2"},
        check=False,
    )
    if done.returncode:
        print(f"{run}: {done.stderr[-2000:]}", file=sys.stderr)
        return math.nan
    metrics: dict[str, Any] = json.loads(done.stdout)["metrics"]
    return float(metrics[trial.metric])


def _rows(values: dict[Run, float]) -> Iterator[str]:
    """A line of a table for each model and mode."""
    yield "| model | workers | update | metric | worst | mean ± deviation | bound | learned |"
    yield "|---|---|---|---|---|---|---|---|"
    for model, workers, update in dict.fromkeys((r.model, r.workers, r.update) for r in values):
        trial = ZOO[model]
        found = [
            value
            for run, value in values.items()
            if (run.model, run.workers, run.update) == (model, workers, update)
        ]
        found.sort(reverse=trial.bound < trial.chance)
        learned = sum(map(trial.has_learned, found))
        deviation = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
        yield (
            f"| `{model}` | {workers} | {update} | {trial.metric} | {found[0]:.3f}"
            f" | {statistics.mean(found):.3f}{deviation} | {trial.bound}"
            f" | {learned} of {len(found)} |"
        )


def main() -> int:
    """Train, print a table, and return 1 if any run has not learned."""
    parser = argparse.ArgumentParser(prog="./dev zoo_quality", description=__doc__)
    parser.add_argument("model", nargs="*", help=f"some of: {', '.join(ZOO)}; by default all")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="runs of each kind")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at the same time")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="after which no job begins any more"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="continue from its results, and add to it"
    )
    chosen = parser.parse_args()
    models = chosen.model or list(ZOO)
    if unknown := set(models) - set(ZOO):
        parser.error(f"no model {', '.join(sorted(unknown))}")
    # A seed of every model comes before the next seed of any.
    runs = [
        Run(model, workers, update, seed)
        for seed in range(chosen.seeds)
        for model in models
        for workers, update in MODES
    ]
    deadline = time.monotonic() + chosen.minutes * 60
    results = ResultsFile(chosen.results, ("model", "workers", "update", "seed"))
    values = {
        run: float(kept["value"])
        for run in runs
        if (kept := results.find(**asdict(run))) is not None
    }
    left = [run for run in runs if run not in values]
    print(f"{len(values)} of {len(runs)} runs were done earlier", flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.jobs) as threads:
        place = Path(folder)
        (place / "data").mkdir()
        for model in dict.fromkeys(run.model for run in left):
            ZOO[model].write(place / "data" / model)

        def train(run: Run) -> float | None:
            if time.monotonic() >= deadline:
                return None
            value = _value(run, place)
            if not math.isnan(value):  # a job that failed is tried again
                results.add({"metric": ZOO[run.model].metric, "value": value}, **asdict(run))
            return value

        for run, value in zip(left, threads.map(train, left), strict=True):
            if value is not None:
                values[run] = value
                print(f"{run.model} {run.workers} {run.update} {run.seed}: {value:.4f}", flush=True)
    print(*_rows({run: values[run] for run in runs if run in values}), sep="\n")
    return 0 if all(ZOO[run.model].has_learned(value) for run, value in values.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
