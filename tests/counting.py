"""Jobs that train the counting models, and the check that they lost and repeated nothing.

``counting`` has one weight per record, ``counting_rows`` one row of an embedding table. The
learning rate is 1 and the gradient −1 for each record of the batch, so after E epochs every weight
is exactly E, or a record was lost or repeated.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from conftest import ROOT, Edl, HeldTraining
from safetensors.numpy import load_file

SPREAD = np.int64(-7046029254386353131)
"""From a record's number to its id, as in model_zoo/counting_rows.py."""

UPDATES = {
    "async": ("--update", "async"),
    "overlap": ("--update", "async", "--overlap"),
    "sync": ("--update", "sync", "--gradient-reduction", "sum"),
    "bounded": ("--update", "bounded", "--max-staleness", "1", "--overlap"),
    "local": ("--local-steps", "3"),
}
"""Options of every way in which gradients become updates."""


def train(
    data: Path | str,
    total: int,
    output: Path | str,
    *more: str,
    epochs: int,
    model: str = "counting",
    held: HeldTraining | None = None,
) -> list[str]:
    """The command line of a job on ``total`` numbered records."""
    size = ("--params", f"size={total}") if model == "counting" else ()
    zoo = ROOT / "model_zoo" if held is None else held.zoo
    waits = () if held is None else ("--dataset-fn", "held.dataset_fn")
    return [
        *("train", "--model-zoo", str(zoo), "--model-def", model, *size, *waits),
        *("--data", str(data), "--num-epochs", str(epochs)),
        # Most tests are about its ledger; another one of ``more`` replaces it.
        *("--strategy", "parameter-server"),
        # Tasks of 100 records in minibatches of 16: nothing divides.
        *("--minibatch-size", "16", "--records-per-task", "100"),
        *("--output", str(output), "-o", "json", *more),
    ]


def check(output: Path, total: int, epochs: float) -> None:
    """Every record is in the trained model exactly once per epoch."""
    arrays = load_file(output / "parameters.safetensors")
    if "count/table_rows" not in arrays:
        (weights,) = arrays.values()
        np.testing.assert_array_equal(weights.reshape(-1), np.full(total, epochs))
        return
    with np.errstate(over="ignore"):
        ids = np.sort(np.arange(total) * SPREAD)
    np.testing.assert_array_equal(arrays["count/table_ids"], ids)
    np.testing.assert_array_equal(arrays["count/table_rows"], np.full((total, 1), epochs))


def records_trained(edl: Edl, name: str) -> int:
    """Records in the model, by the status that the master wrote last."""
    return int(edl.written_status(name).get("records_trained", 0))


def event_kinds(edl: Edl, name: str) -> list[str]:
    """The kinds of all events of a job, in their order."""
    lines = (edl.job_dir(name) / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]
