"""A random search of ``edl tune`` with two trials at once, against KerasTuner in one process.

Both search the same model, and each trial costs the same. The times are those of whole commands,
from their start to their end.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.jobs import EDL, write_data
from bench.measure import ROOT, compare

RUNS, TRIALS, RECORDS, BATCH, EPOCHS = 1, 20, 12_800, 64, 6
KERAS_TUNER = (
    "keras-tuner==1.4.8",
    "kt-legacy",
    "tensorboard",
    "markdown",
    "werkzeug",
    "markupsafe",
)
"""KerasTuner with what it imports and the environment lacks."""
TARGET = 2 / 1.1
"""Twice as many trials per minute, less a tenth."""


def measures() -> list[dict[str, Any]]:
    """Return trials per minute."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        data = write_data(work, "digits", RECORDS)
        packages = _install(work / "packages")
        peer = [sys.executable, "-m", "bench.peers.keras_tuner_search", str(data)]
        sizes = [str(number) for number in (TRIALS, BATCH, EPOCHS)]
        searches = itertools.count()
        measure = compare(
            "trials, two at once",
            "trials/min",
            lambda: _rate(_study(work, data, next(searches)), {"EDL_HOME": str(work / "home")}),
            "KerasTuner, one process",
            lambda: _rate([*peer, *sizes], {"PYTHONPATH": str(packages)}),
            runs=RUNS,
            target=TARGET,
        )
        return [measure.to_json()]


def _install(place: Path) -> Path:
    """Install KerasTuner beside the environment, which it shall not change."""
    command = ["uv", "pip", "install", "-q", "--no-deps", "--target", str(place)]
    subprocess.run([*command, *KERAS_TUNER], check=True)
    return place


def _study(work: Path, data: Path, number: int) -> list[str]:
    return [
        *(*EDL, "tune", "--name", f"bench-{number}", "-q", "--model-zoo", "bench/models"),
        *("--model-def", "tuned_digits", "--data", f"{data}/train/*.recordio"),
        *("--validation-data", f"{data}/test/*.recordio", "--objective", "val_accuracy"),
        *("--sampler", "random", "--seed", "1", "--trials", str(TRIALS), "--parallel", "2"),
        *("--minibatch-size", str(BATCH), "--num-epochs", str(EPOCHS)),
        *("--output", str(work / f"best-{number}")),
    ]


def _rate(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Return the trials per minute of a command."""
    began = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environ},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return TRIALS * 60 / (time.perf_counter() - began)
