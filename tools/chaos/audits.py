"""Jobs to disturb, and what each must have made in the end."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import digits
import recordio
import recordio.example
from chaos.job import ROOT

UPDATES = {
    # What is harder: with one more gradient of each worker under way.
    "async": ("--update", "async", "--overlap"),
    "sync": ("--update", "sync", "--gradient-reduction", "sum"),
    "bounded": ("--update", "bounded", "--max-staleness", "1", "--overlap"),
    "local": ("--local-steps", "3"),
    "allreduce": ("--strategy", "allreduce"),
}
"""Options of every way in which gradients become updates; all-reduce needs no servers."""

_TRAINED_MODEL = ("parameters.safetensors", "model.keras", "saved_model", "trained_model.pb")


@dataclass(frozen=True)
class AuditedJob:
    """A kind of job.

    Attributes:
        title: for reports.
        inputs: folder of its model zoo and its data, which each job copies.
        arguments: of the command in that folder, without name, numbers of processes, and output.
        servers: number of parameter servers.
        audit: returns what is wrong with the job's output and its last status.
    """

    title: str
    inputs: Path
    arguments: list[str]
    servers: int
    audit: Callable[[Path, dict[str, Any]], list[str]]


def counting(
    place: Path, update: str, servers: int, total: int, epochs: int, *, table: bool = False
) -> AuditedJob:
    """A model with a weight per record, which each training step on that record adds 1 to.

    Args:
        table: whether the records are rows of CSV files, with columns in different orders.
    """
    inputs = _inputs(place / ("rows" if table else "numbers"))
    if not (inputs / "train").exists():
        (inputs / "train").mkdir()
        cuts = [0, total // 7, total // 2, total]
        for part, (start, stop) in enumerate(itertools.pairwise(cuts)):
            write = _write_table if table else _write_records
            write(inputs / "train" / f"part-{part}", range(start, stop), part)

    def audit(output: Path, status: dict[str, Any]) -> list[str]:
        (weights,) = load_file(output / "parameters.safetensors").values()
        weights = weights.reshape(-1)
        lost, repeated = int(np.sum(weights < epochs)), int(np.sum(weights > epochs))
        exact = int(np.sum(weights == epochs))
        print(
            f"  audit: {exact:,} of {total:,} weights are exactly {epochs}:"
            f" {lost} lost, {repeated} repeated"
        )
        wrong = [f"{lost} records lost, {repeated} repeated"] if lost or repeated else []
        return wrong + _wrong_count(status, total * epochs)

    model = "counting_columns" if table else "counting"
    return AuditedJob(
        f"{model}, {update}, parameter servers: {servers}",
        inputs,
        [
            *("train", "--model-zoo", "zoo", "--model-def", model),
            *("--params", f"size={total}", "--data", "train", "--num-epochs", str(epochs)),
            *("--minibatch-size", "16", "--records-per-task", "400", *UPDATES[update]),
        ],
        servers,
        audit,
    )


def mnist(place: Path, servers: int, epochs: int) -> AuditedJob:
    """A real model on real handwritten digits."""
    inputs = _inputs(place / "digits")
    if not (inputs / "train").exists():
        digits.make(inputs)
    trained = _count(inputs / "train")

    def audit(output: Path, status: dict[str, Any]) -> list[str]:
        accuracy = float(status.get("metrics", {}).get("accuracy", 0.0))
        print(f"  audit: accuracy {accuracy:.3f} on digits that were held out")
        wrong = [] if accuracy > 0.9 else [f"the model has learned too little: {accuracy:.3f}"]
        return wrong + _wrong_count(status, trained * epochs)

    return AuditedJob(
        f"digits, async, parameter servers: {servers}",
        inputs,
        [
            *("train", "--model-zoo", "zoo"),
            *("--model-def", "mnist.mnist_functional_api", "--minibatch-size", "64"),
            *("--data", "train", "--validation-data", "test", "--num-epochs", str(epochs)),
        ],
        servers,
        audit,
    )


def stopped_too_early(checkpoints: Path, name: str, status: dict[str, Any]) -> list[str]:
    """What is wrong with a stopped counting job: its last checkpoint holds what its status says."""
    kept = sorted(checkpoints.glob(f"{name}-*"))
    if not kept:
        return [] if not int(status.get("records_trained", 0)) else ["no checkpoint was kept"]
    body = json.loads((kept[-1] / "manifest.json").read_text())["body"]
    if body.get("parts"):
        return []  # the values are in parts by server; only jobs without servers are compared
    arrays = [np.load(kept[-1] / file) for file in body["arrays"].values()]
    found = int(max((array.sum() for array in arrays if array.dtype == np.float32), default=0))
    print(f"  audit: {found:,} records in the last checkpoint")
    return _wrong_count(status, found)


def missing_files(output: Path) -> list[str]:
    return [name for name in _TRAINED_MODEL if not (output / name).exists()]


def _inputs(place: Path) -> Path:
    """A folder for inputs that has the model zoo."""
    if not place.exists():
        shutil.copytree(ROOT / "model_zoo", place / "zoo")
    return place


def _write_records(place: Path, numbers: range, part: int) -> None:
    # Without compression, other records in another order may have the same size.
    with recordio.Writer(f"{place}.recordio", compressor="none") as writer:
        for number in numbers:
            writer.write(recordio.example.encode({"number": np.array([number])}))


def _write_table(place: Path, numbers: range, part: int) -> None:
    columns = {"number": numbers, "twin": reversed(numbers)}
    names = sorted(columns, reverse=part % 2 == 1)
    rows = zip(*(columns[name] for name in names), strict=True)
    lines = [",".join(map(str, row)) for row in [names, *rows]]
    place.with_suffix(".csv").write_text("\n".join(lines) + "\n")


def _count(place: Path) -> int:
    return sum(recordio.open_source(uri).count() for uri in recordio.expand(str(place)))


def _wrong_count(status: dict[str, Any], wanted: int) -> list[str]:
    found = int(status.get("records_trained", 0))
    return [] if found == wanted else [f"{found} records trained, {wanted} were wanted"]
