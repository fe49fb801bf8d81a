"""What each way of updating costs: validation loss after some epochs, and rate, by seed.

A small model of the digits, with one and two workers, next to Keras' ``fit``. The rate is that from
the end of the first epoch to the end of the last.

``EDL_BENCH_SEEDS`` is the number of seeds (3), ``EDL_BENCH_EPOCHS`` that of epochs (8). With
``EDL_BENCH_RESULTS``, a file, a later call continues where an earlier one has ended.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.jobs import EDL
from bench.measure import ROOT, Measure

sys.path.insert(0, str(ROOT / "tools"))

from results_file import ResultsFile

import digits

SEEDS = int(os.environ.get("EDL_BENCH_SEEDS", "3"))
EPOCHS = int(os.environ.get("EDL_BENCH_EPOCHS", "8"))
RESULTS = os.environ.get("EDL_BENCH_RESULTS", "")
BATCH = 32
FIT = "Keras fit"
MODES = {
    "default, 1 worker": ("1",),
    "--overlap, 1 worker": ("1", "--overlap"),
    "--local-steps 16, 1 worker": ("1", "--local-steps", "16"),
    "default (async), 2 workers": ("2",),
    "--overlap, 2 workers": ("2", "--overlap"),
    "--update bounded, 2 workers": ("2", "--update", "bounded"),
    "--update sync, 2 workers": ("2", "--update", "sync"),
    "--local-steps 16, 2 workers": ("2", "--local-steps", "16"),
}
"""Number of workers and options of each way."""


def measures() -> list[dict[str, Any]]:
    """Validation loss and rate of each way next to Keras' fit."""
    results = ResultsFile(Path(RESULTS) if RESULTS else None, ("mode", "seed", "epochs"))
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="edl-modes-", ignore_cleanup_errors=True) as place:
        data = Path(place) / "digits"
        digits.make(data)
        for seed in range(SEEDS):
            for mode in (FIT, *MODES):
                what = {"mode": mode, "seed": seed, "epochs": EPOCHS}
                if results.find(**what) is None:
                    measure = _fit if mode == FIT else _train
                    results.add(measure(Path(place), mode, seed), **what)
                result = results.find(**what)
                assert result is not None, "it has just been added"
                found.setdefault(mode, []).append(result)
                print(f"  {mode}, seed {seed}: {result}", file=sys.stderr, flush=True)
    peers = found.pop(FIT)
    return [
        Measure(
            name=f"{name}, {mode}",
            value=statistics.median(each[name] for each in runs),
            unit=unit,
            peer=FIT,
            peer_value=statistics.median(each[name] for each in peers),
            ratio=statistics.median(
                each[name] / peer[name] for each, peer in zip(runs, peers, strict=True)
            ),
            target=None,
            runs=[(each[name], peer[name]) for each, peer in zip(runs, peers, strict=True)],
        ).to_json()
        for mode, runs in found.items()
        for name, unit in (("loss", ""), ("rate", "records/s"))
    ]


def _fit(place: Path, mode: str, seed: int) -> dict[str, float]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.peers.fit_digits",
            place / "digits",
            *map(str, (BATCH, EPOCHS, seed)),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{mode}, seed {seed}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _train(place: Path, mode: str, seed: int) -> dict[str, float]:
    workers, *options = MODES[mode]
    name = f"modes-{list(MODES).index(mode)}-{seed}"
    command = [
        *(*EDL, "train", "--name", name, "-q", "--model-zoo", str(ROOT / "bench" / "models")),
        *("--model-def", "digits_dense", "--data", f"{place}/digits/train/*.recordio"),
        *("--validation-data", f"{place}/digits/test/*.recordio", "--seed", str(seed)),
        *("--num-epochs", str(EPOCHS), "--minibatch-size", str(BATCH)),
        *("--num-workers", workers, "--output", str(place / name)),
        *("--strategy", "parameter-server", *options),
    ]
    home = place / "home"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "EDL_HOME": str(home)},
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    job = home / "jobs" / name
    events = map(json.loads, (job / "events.jsonl").read_text().splitlines())
    ends = [datetime.fromisoformat(e["at"]) for e in events if e["kind"] == "EpochEnded"]
    records = json.loads((job / "status.json").read_text())["progress"]["records_done"]
    rate = int(records) * (EPOCHS - 1) / EPOCHS / (ends[-1] - ends[0]).total_seconds()
    loss = json.loads((job / "status.json").read_text())["metrics"]["loss"]
    return {"loss": float(loss), "rate": rate}
