"""The main job on real input: ``./dev demo``.

Writes real handwritten digits as RecordIO files, trains the MNIST CNN of the documents with two
workers, evaluates and predicts, and checks what came out against the labels.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import digits
import recordio
import recordio.example

ROOT = Path(__file__).resolve().parent.parent
TARGET_ACCURACY = 0.95
EDL = Path(sys.executable).parent / "edl"


def edl(*args: str) -> dict[str, Any]:
    """Run an edl command as a person would, and return its JSON result."""
    print(f"\n$ edl {shlex.join(args)}", flush=True)
    done = subprocess.run(
        [str(EDL), *args, "-o", "json"], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        print(done.stdout)
        sys.exit(f"demo: edl {args[0]} ended with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def predicted_digits(directory: Path) -> np.ndarray[Any, Any]:
    """The most likely digit of each prediction, in the order of the input."""
    logits = [
        recordio.example.decode(record)["prediction"]
        for uri in recordio.expand(str(directory))
        for record in recordio.open_source(uri).read(0, sys.maxsize)
    ]
    return np.argmax(np.stack(logits), axis=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=ROOT / "build" / "demo")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", default="2")
    chosen = parser.parse_args()
    begun = time.monotonic()
    place: Path = chosen.dir
    if place.exists():
        shutil.rmtree(place)
    trained, held_out = digits.make(place / "data")
    print(f"{trained} digits to train on and {held_out} held out, in {place / 'data'}")

    job = f"demo-{time.strftime('%H%M%S')}"
    result = edl(
        "train",
        *("--name", job),
        *("--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api"),
        *("--data", f"{place}/data/train/*.recordio"),
        *("--validation-data", f"{place}/data/test/*.recordio"),
        *("--num-workers", chosen.workers, "--num-epochs", str(chosen.epochs)),
        *("--minibatch-size", "64", "--keep-page", "10m"),
        *("--output", f"{place}/model"),
    )
    evaluation = edl(
        "evaluate",
        *("--data", f"{place}/data/test/*.recordio", "--trained-model", f"{place}/model"),
    )
    edl(
        "predict",
        *("--data", f"{place}/data/test/*.recordio", "--trained-model", f"{place}/model"),
        *("--output", f"{place}/predictions"),
    )
    labels = digits.load()[1][-held_out:]
    found = predicted_digits(place / "predictions")
    accuracy = float(np.mean(found == labels))
    agree = abs(accuracy - evaluation["metrics"]["accuracy"]) < 1e-6
    expected = chosen.epochs * trained
    measured = evaluation["metrics"]["accuracy"]
    agree = abs(accuracy - measured) < 1e-6
    report = {
        "accuracy": f"{accuracy:.4f} on {held_out} held-out digits (target {TARGET_ACCURACY})",
        "evaluation": f"{measured:.4f}, {'as' if agree else 'NOT as'} counted from the predictions",
        "images/s": f"{result['records_per_s']:,.0f} while training",
        "records": f"{result['records_trained']} trained, {chosen.epochs} epochs of {trained}",
        "trained model": result["output"],
        "status page": f"{edl('dashboard', job)['dashboard_url']} (for ten minutes)",
        "took": f"{time.monotonic() - begun:.0f} s",
    }
    print()
    for name, value in report.items():
        print(f"{name:<14} {value}")
    exact = result["records_trained"] == expected
    return 0 if accuracy >= TARGET_ACCURACY and agree and exact else 1


if __name__ == "__main__":
    sys.exit(main())
