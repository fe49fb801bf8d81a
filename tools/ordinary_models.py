"""Compares what ordinary models learn in jobs and with ``fit``: ``./dev ordinary_models``.

Trains each file of ``tests/ordinary_models`` with default options, one worker and two, from several
seeds, and with ``fit`` at the minibatch of one worker and at that of two together.

    ./dev ordinary_models --seeds 5                    about an hour on two cores
    ./dev ordinary_models rides --results FILE      continue from earlier results, and add to it

``bench/results/ordinary_models.jsonl`` has what was measured so far.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results_file import ResultsFile

ROOT = Path(__file__).resolve().parent.parent
EDL = str(Path(sys.executable).parent / "edl")
BATCH_SIZE = 32
NAMES = ("model", "trained", "seed")
WAYS = ("fit", "1 worker", "2 workers", "fit at twice the minibatch")

Row = dict[str, Any]


def _write_table(path: Path, count: int, draw: Callable[[random.Random], Row]) -> None:
    rows = [draw(random.Random(f"{path.name} {number}")) for number in range(count)]
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _draw_customer(draw: random.Random) -> Row:
    """Return a customer, some of whose values are missing."""
    age, income = draw.gauss(42, 12), draw.lognormvariate(10, 0.5)
    city, plan, visits = draw.randrange(12), draw.randrange(3), draw.randrange(12)
    score = (age - 42) / 12 - 0.5 * math.log(income / 22000) + (city % 4 - 1.5) - plan
    left = score - (visits - 6) / 3 + draw.gauss(0, 0.8) > -1
    row: Row = {
        "age": f"{age:.1f}",
        "income": f"{income:.2f}",
        "city": f"City {'ABCDEFGHIJKL'[city]}",
        "plan": ("free", "basic", "pro")[plan],
        "visits": visits,
    }
    missing = {name: "" for name in ("age", "income", "city", "visits") if draw.random() < 0.07}
    return {**row, **missing, "left": int(left)}


def _draw_review(draw: random.Random) -> Row:
    """Return a review of one sentence or two, in which "not" turns a word round."""
    things = ("food", "service", "room", "staff", "view", "music", "breakfast", "price", "bed")
    words = (("dull", "awful", "cold", "rude", "late"), ("fine", "lovely", "warm", "kind", "quick"))
    label = draw.randrange(2)

    def sentence() -> str:
        denied = draw.random() < 0.2
        verb, word = draw.choice(("was", "seemed")), draw.choice(words[label ^ denied])
        return f"The {draw.choice(things)} {verb} {'not ' * denied}{word}, I think."

    return {"text": " ".join(sentence() for _ in range(draw.randint(1, 2))), "label": label}


def _draw_ride(draw: random.Random) -> Row:
    distance, hour, zone = draw.lognormvariate(1, 0.6), draw.uniform(0, 24), draw.randrange(20)
    rain = max(0.0, draw.gauss(-0.5, 1))
    pace = 2.5 + 1.5 * math.exp(-(((hour - 17) / 3) ** 2)) + 0.6 * rain + 0.1 * zone
    card = draw.random() < 0.7
    tip = card and draw.random() < 1 / (1 + math.exp(4 - distance - 0.3 * (zone % 7) - rain))
    return {
        "distance": f"{distance:.3f}",
        "hour": f"{hour:.3f}",
        "rain": f"{rain:.3f}",
        "zone": zone,
        "minutes": f"{distance * pace + draw.gauss(2, 1.5):.3f}",
        "card": int(card),
        "tip": int(tip),
    }


def _split_table(draw: Callable[[random.Random], Row]) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        _write_table(place / "train.csv", 1600, draw)
        _write_table(place / "test.csv", 600, draw)

    return write


def _convert(place: Path, source: Path, *options: str) -> None:
    command = (EDL, "data", "convert", str(source), "--split", "0.75", "--quiet", *options)
    subprocess.run([*command, "--to", str(place / "data")], check=True, stdout=subprocess.DEVNULL)


def _write_rides(place: Path) -> None:
    _write_table(place / "rides.csv", 2200, _draw_ride)
    _convert(place, place / "rides.csv")


def _write_digits(*options: str) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        from PIL import Image
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = place / "images" / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray((image.reshape(8, 8) * (255 / 16)).astype("uint8"))
            picture.save(folder / f"{number}.png")
        _convert(place, place / "images", *options)

    return write


@dataclass(frozen=True)
class Case:
    """A model file with its data.

    Attributes:
        write: writes the data into a new folder.
        epochs: the number of passes over it.
        train: where the data then is, and ``test`` likewise.
        prepare: the arguments with which the model file is run once, if it has to be.
        accuracy: the name of this metric in jobs, and with ``fit``.
    """

    write: Callable[[Path], None]
    epochs: int
    train: str = "data/train"
    test: str = "data/test"
    prepare: tuple[str, ...] | None = None
    accuracy: str = "accuracy"


_CSV = {"train": "train.csv", "test": "test.csv"}
CASES = {
    "mixed_csv": Case(_split_table(_draw_customer), 8, **_CSV, prepare=("train.csv",)),
    "image_folder": Case(_write_digits(), 6),
    "transformer": Case(_split_table(_draw_review), 8, **_CSV, prepare=("train.csv",)),
    "rides": Case(_write_rides, 12, accuracy="tip_accuracy"),
    "transfer": Case(_write_digits(), 4, prepare=()),
    "mnist_convnet": Case(_write_digits("--size", "28x28"), 4),
}


class Workshop:
    """A folder with the zoo and the data of all models."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._env = {**os.environ, "EDL_HOME": f"{place}/home", "TF_CPP_MIN_LOG_LEVEL": "2"}
        shutil.copytree(ROOT / "tests" / "ordinary_models", place / "zoo")

    def prepare(self, model: str) -> Path:
        """Write the data of a model, and run its file where the file asks for it."""
        case, data = CASES[model], self.place / "data" / model
        if not data.exists():
            data.mkdir(parents=True)
            case.write(data)
            if case.prepare is not None:
                self._run(sys.executable, str(self._file(model)), *case.prepare, cwd=data)
        return data

    def train(self, model: str, workers: int, seed: int) -> Row:
        """Train by a job with default options; return its metrics."""
        case, data = CASES[model], self.prepare(model)
        name = f"{model}-{workers}-{seed}".replace("_", "-")
        said = self._run(
            *(EDL, "train", "--model-zoo", f"{self.place}/zoo", "--model-def", model),
            *("--data", f"{data}/{case.train}", "--validation-data", f"{data}/{case.test}"),
            *("--num-epochs", str(case.epochs), "--num-workers", str(workers)),
            *("--seed", str(seed), "--name", name, "--output", f"{self.place}/models/{name}"),
            *("-o", "json"),
        )
        metrics: Row = json.loads(said)["metrics"]
        return {"loss": metrics["loss"], "accuracy": metrics[case.accuracy]}

    def fit(self, model: str, batch_size: int, seeds: list[int]) -> Iterator[Row]:
        """Train by ``fit``; yield what it evaluates, for each seed."""
        case, data = CASES[model], self.prepare(model)
        said = self._run(
            *(sys.executable, str(ROOT / "tools" / "ordinary_fit.py"), str(self._file(model))),
            *(f"{data}/{case.train}", f"{data}/{case.test}", str(case.epochs), str(batch_size)),
            *map(str, seeds),
        )
        for line in said.splitlines():
            values: Row = json.loads(line)
            yield {"loss": values["loss"], "accuracy": values[case.accuracy]}

    def _file(self, model: str) -> Path:
        return self.place / "zoo" / f"{model}.py"

    def _run(self, *command: str, cwd: Path = ROOT) -> str:
        done = subprocess.run(
            command, cwd=cwd, env=self._env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
        return done.stdout


def find_values(
    results: ResultsFile, model: str, metric: str, seeds: int
) -> tuple[list[float], ...]:
    """Return what was measured in each way of ``WAYS``."""
    return tuple(
        [
            float(row[metric])
            for seed in range(seeds)
            if (row := results.find(model=model, trained=way, seed=seed))
        ]
        for way in WAYS
    )


def _test(values: list[float], others: list[float]) -> float:
    """Return the p-value of Welch's test."""
    from scipy.stats import ttest_ind

    return float(ttest_ind(values, others, equal_var=False).pvalue)


def is_noise(values: list[float], others: list[float]) -> bool:
    """Return whether two means differ by less than the seeds alone make them differ."""
    far = abs(statistics.mean(values) - statistics.mean(others))
    deviation = max(statistics.stdev(values), statistics.stdev(others))
    return far < deviation or _test(values, others) > 0.05


def _rows(results: ResultsFile, models: list[str], seeds: int) -> Iterator[str]:
    """Yield the lines of a table, for each model and metric."""
    yield "| model | | fit | one worker | p | two workers | p | fit, twice the minibatch | p |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for model in models:
        for metric in ("loss", "accuracy"):
            fit, one, two, twice = found = find_values(results, model, metric, seeds)
            if min(map(len, found)) < 2:
                continue
            mean = [f"{statistics.mean(v):.4f} ± {statistics.stdev(v):.4f}" for v in found]
            p = [
                f"{_test(values, others):.2f}{'' if is_noise(values, others) else ' DIFFERS'}"
                for values, others in ((one, fit), (two, fit), (two, twice))
            ]
            yield (
                f"| `{model}` | {metric} | {mean[0]} | {mean[1]} | {p[0]}"
                f" | {mean[2]} | {p[1]} | {mean[3]} | {p[2]} |"
            )


def _measure(results: ResultsFile, workshop: Workshop, models: list[str], seeds: int) -> None:
    def fit(way: str, batch_size: int) -> None:
        for model in models:
            left = [s for s in range(seeds) if not results.find(model=model, trained=way, seed=s)]
            found = workshop.fit(model, batch_size, left) if left else ()
            for seed, values in zip(left, found, strict=True):
                results.add(values, model=model, trained=way, seed=seed)

    fit(WAYS[0], BATCH_SIZE)
    for seed, model in itertools.product(range(seeds), models):
        for workers in (1, 2):
            run = {"model": model, "trained": WAYS[workers], "seed": seed}
            if not results.find(**run):
                values = workshop.train(model, workers, seed)
                results.add(values, **run)
                print(*run.values(), values, flush=True)
    fit(WAYS[3], 2 * BATCH_SIZE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev ordinary_models", description=__doc__)
    parser.add_argument("model", nargs="*", help=f"some of: {', '.join(CASES)}; by default all")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="runs of each kind")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="continue from its results, and add to it"
    )
    chosen = parser.parse_args()
    models = chosen.model or list(CASES)
    if unknown := set(models) - set(CASES):
        parser.error(f"no model {', '.join(sorted(unknown))}")
    results = ResultsFile(chosen.results, NAMES)
    with tempfile.TemporaryDirectory() as folder:
        _measure(results, Workshop(Path(folder)), models, chosen.seeds)
    print(*_rows(results, models, chosen.seeds), sep="\n")


if __name__ == "__main__":
    main()
