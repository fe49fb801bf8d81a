"""The main job on real input: ``./dev demo``.

Writes real handwritten digits as RecordIO files, trains the MNIST CNN of the documents with two
workers, evaluates and predicts, and checks what came out against the labels. With ``--platform
kubernetes``, it does all of this as pods of a cluster, in an image that the builder makes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import digits
import recordio
import recordio.example

if TYPE_CHECKING:
    from demo_cluster import DemoCluster

ROOT = Path(__file__).resolve().parent.parent
TARGET_ACCURACY = 0.95
EDL = Path(sys.executable).parent / "edl"


class Processes:
    """Jobs as processes of this machine."""

    trust: tuple[str, ...] = ()

    def __init__(self, environ: Mapping[str, str], arguments: tuple[str, ...] = ()) -> None:
        self.environ = {**os.environ, **environ}
        self.arguments = arguments

    def edl(self, *args: str) -> dict[str, Any]:
        """Run an edl command as a person would, and return its JSON result."""
        print(f"\n$ edl {shlex.join(args)}", flush=True)
        done = subprocess.run(
            [str(EDL), *args, "-o", "json"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environ,
            check=False,
        )
        if done.returncode:
            print(done.stdout)
            sys.exit(f"demo: edl {args[0]} ended with exit code {done.returncode}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def facts(self, job: str, *others: str) -> dict[str, str]:
        """More lines of the report."""
        url = self.edl("dashboard", job)["dashboard_url"]
        return {"job page": f"{url} (for ten minutes)"}


class Pods(Processes):
    """Jobs as pods of a cluster."""

    # The pods' user owns the model; they ran a job of this very demo.
    trust = ("--trust-model",)

    def __init__(self, demo_cluster: DemoCluster) -> None:
        super().__init__(demo_cluster.environ, demo_cluster.arguments)
        self._demo_cluster = demo_cluster

    def facts(self, job: str, *others: str) -> dict[str, str]:
        facts = {
            "job page": self._page(job),
            "pods": self._demo_cluster.pods(),
        }
        for each in (job, *others):
            self.edl("delete", each, "--yes", "--stop")
        return facts

    def _page(self, job: str) -> str:
        """Open the job's page as a browser does, through a port-forward of the API server."""
        print(f"\n$ edl dashboard {job}", flush=True)
        with subprocess.Popen(
            [str(EDL), "dashboard", job], stdout=subprocess.PIPE, text=True, env=self.environ
        ) as command:
            try:
                assert command.stdout is not None
                url = command.stdout.readline().strip()
                browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
                with browser.open(url, timeout=60) as answer:
                    size = len(answer.read())
            finally:
                command.send_signal(signal.SIGINT)
        return f"{url.partition('?')[0]}, {size} bytes, through a port-forward"


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
    parser.add_argument("--platform", default="processes", choices=["processes", "kubernetes"])
    chosen = parser.parse_args()
    place: Path = chosen.dir
    if place.exists():
        shutil.rmtree(place)
    if chosen.platform == "processes":
        return demonstrate(Processes({}), place, chosen.workers, chosen.epochs)
    # Imported only here: it needs what the tests need.
    from demo_cluster import open_cluster

    place.mkdir(parents=True)
    with open_cluster(place.resolve()) as demo_cluster:
        return demonstrate(Pods(demo_cluster), place.resolve(), chosen.workers, chosen.epochs)


def demonstrate(platform: Processes, place: Path, workers: str, epochs: int) -> int:
    """Train, evaluate and predict, and print a report; the exit code."""
    edl = platform.edl
    begun = time.monotonic()
    trained, held_out = digits.make(place / "data")
    print(f"{trained} digits to train on and {held_out} held out, in {place / 'data'}")

    job = f"demo-{time.strftime('%H%M%S')}"
    result = edl(
        "train",
        *("--name", job, *platform.arguments),
        *("--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api"),
        *("--data", f"{place}/data/train/*.recordio"),
        *("--validation-data", f"{place}/data/test/*.recordio"),
        *("--num-workers", workers, "--num-epochs", str(epochs)),
        *("--minibatch-size", "64", "--keep-page", "10m"),
        *("--output", f"{place}/model"),
    )
    trained_model = (
        *platform.trust,
        *("--data", f"{place}/data/test/*.recordio", "--trained-model", f"{place}/model"),
    )
    evaluation = edl(
        "evaluate",
        *platform.arguments,
        *trained_model,
    )
    prediction = edl(
        "predict",
        *platform.arguments,
        *trained_model,
        *("--output", f"{place}/predictions"),
    )
    labels = digits.load()[1][-held_out:]
    found = predicted_digits(place / "predictions")
    accuracy = float(np.mean(found == labels))
    expected = epochs * trained
    measured = evaluation["metrics"]["accuracy"]
    agree = abs(accuracy - measured) < 1e-6
    report = {
        "accuracy": f"{accuracy:.4f} on {held_out} held-out digits (target {TARGET_ACCURACY})",
        "evaluation": f"{measured:.4f}, {'as' if agree else 'NOT as'} counted from the predictions",
        "images/s": f"{result['records_per_s']:,.0f} while training",
        "records": f"{result['records_trained']} trained, {epochs} epochs of {trained}",
        "trained model": result["output"],
        **platform.facts(job, evaluation["job"], prediction["job"]),
        "took": f"{time.monotonic() - begun:.0f} s",
    }
    print()
    for name, value in report.items():
        print(f"{name:<14} {value}")
    exact = result["records_trained"] == expected
    return 0 if accuracy >= TARGET_ACCURACY and agree and exact else 1


if __name__ == "__main__":
    sys.exit(main())
