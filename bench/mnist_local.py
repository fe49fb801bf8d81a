"""``edl train`` with one local worker against plain Keras ``fit``: same model, data and cores.

Both are measured from the end of the first epoch to the end of the last, so that neither
imports, compiles nor starts processes in the measured time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.measure import paired

ROOT = Path(__file__).resolve().parent.parent
RECORDS, EPOCHS, BATCH, RUNS = 12_800, 4, 64, 5


def _edl(data: Path, work: Path, runs: list[int]) -> float:
    """Images per second of ``edl train`` on MNIST, from its own events."""
    runs.append(len(runs))
    name = f"bench-{os.getpid()}-{runs[-1]}"
    env = {**os.environ, "EDL_HOME": str(work / "home")}

    def edl(*args: str) -> str:
        command = [str(Path(sys.executable).parent / "edl"), *args]
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=600, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
        return done.stdout

    edl(
        *("train", "--name", name, "-q", "--model-zoo", "model_zoo"),
        *("--model-def", "mnist.mnist_functional_api", "--data", f"{data}/train/*.recordio"),
        *("--num-workers", "1", "--num-epochs", str(EPOCHS), "--minibatch-size", str(BATCH)),
        *("--output", str(work / name)),
    )
    ends = [
        datetime.fromisoformat(event["at"])
        for event in map(json.loads, (work / "home/jobs" / name / "events.jsonl").open())
        if event["kind"] == "EpochEnded"
    ]
    return RECORDS * (EPOCHS - 1) / (ends[-1] - ends[0]).total_seconds()


def _fit(data: Path) -> float:
    """Images per second of ``model.fit`` on the same records, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers.keras_fit", str(data), str(BATCH), str(EPOCHS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    if done.returncode:
        raise RuntimeError(f"the peer failed: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["images_per_s"])


def measures() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        subprocess.run(
            [sys.executable, "tools/digits.py", str(work / "data"), "--records", str(RECORDS)],
            cwd=ROOT,
            check=True,
            stdout=sys.stderr,
        )
        runs: list[int] = []
        return [
            paired(
                "mnist, edl train, one local worker",
                "images/s",
                lambda: _edl(work / "data", work, runs),
                "Keras fit",
                lambda: _fit(work / "data"),
                runs=RUNS,
                target=0.80,
            ).to_json()
        ]
