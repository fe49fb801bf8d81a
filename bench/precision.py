"""Numbers of 16 bits on the wire: what they do to training, to bytes and to speed.

- accuracy: the MNIST CNN on the digits, one worker, three seeds; of the held-out digits, with
  ``edl evaluate``. Its peer is the same job at float32 with the same seed.
- bytes: what the master has received and sent of parameters in these jobs, from its metrics.
- pull and push+apply of 64 MB of float32 as ``transport`` has them, in GB/s of the float32 numbers
  that are sent rounded. Over loopback, where bytes cost next to nothing, this is what rounding in
  the master costs; that of the worker is inside its step, and not here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.jobs import write_data
from bench.measure import ROOT, Measure, compare, run_module
from bench.transport import Worker, rate
from edl_proto.v1 import job_pb2
from edl_testing.scrape import scrape

SEEDS, EPOCHS, BATCH = (1, 2, 3), int(os.environ.get("EDL_BENCH_EPOCHS", "20")), 64
RECORDS = 1_437
"""All digits that are not held out, once."""

HALVES = ("float16", "bfloat16")
NBYTES, RUNS, TIMES = 64_000_000, 5, 9
MODEL = (
    *("--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api", "--no-overlap"),
    *("--strategy", "parameter-server"),
)
"""Without overlap every gradient is of the newest values: what differs is the precision alone."""


def _edl(work: Path, *arguments: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "edl"), *arguments, "-o", "json"]
    environment = {**os.environ, "EDL_HOME": str(work / "home"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=900, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _train(work: Path, data: Path, precision: str, seed: int) -> tuple[float, float]:
    """Train; return the accuracy on held-out digits, and the MB of parameters exchanged."""
    name = f"{precision}-{seed}"
    _edl(
        *(work, "train", "--name", name, *MODEL, "--data", f"{data}/train/*.recordio"),
        *("--num-epochs", str(EPOCHS), "--minibatch-size", str(BATCH), "--seed", str(seed)),
        *("--wire-precision", precision, "--output", str(work / name), "--keep-page", "60"),
    )
    text = scrape(work / "home" / "jobs" / name)
    exchanged = re.findall(r"^edl_parameter_bytes_total\{.*\} (\S+)$", text, re.MULTILINE)
    tested = f"{data}/test/*.recordio"
    found = _edl(work, "evaluate", "--data", tested, "--trained-model", str(work / name))
    accuracy, nbytes = float(found["metrics"]["accuracy"]), sum(map(float, exchanged))
    told = f"  {name}: accuracy {accuracy:.4f}, {nbytes / 1e6:,.1f} MB"
    print(told, file=sys.stderr, flush=True)
    return accuracy, nbytes / 1e6


def _measure(name: str, unit: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    return Measure(
        name=name,
        value=median(ours for ours, _ in pairs),
        unit=unit,
        peer="float32, the same seed",
        peer_value=median(theirs for _, theirs in pairs),
        ratio=median(ours / theirs for ours, theirs in pairs),
        target=None,
        runs=pairs,
    ).to_json()


def _training() -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        data = write_data(work, "digits", RECORDS)
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in ("float32", *HALVES)}
        for seed in SEEDS:
            for precision, of_seeds in found.items():
                of_seeds.append(_train(work, data, precision, seed))
        for precision in HALVES:
            both = list(zip(found[precision], found["float32"], strict=True))
            what = f"digits, {EPOCHS} epochs, {precision}"
            rows += [
                _measure(f"{what}: accuracy", "held out", [(a[0], b[0]) for a, b in both]),
                _measure(f"{what}: parameters", "MB", [(a[1], b[1]) for a, b in both]),
            ]
    return rows


def _transfers() -> list[dict[str, Any]]:
    rows = []
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for precision in ("float32", *HALVES):
            server = stack.enter_context(
                run_module("bench.peers.plane_server", "1", str(NBYTES // 4), "SGD")
            )
            kind = job_pb2.WirePrecision.Value(precision.upper())
            workers[precision] = Worker(*server.split(), NBYTES, kind)
        for name, what in (("pull", "pull"), ("push+apply, SGD", "push")):
            for precision in HALVES:
                ours: Callable[[], None] = getattr(workers[precision], what)
                theirs: Callable[[], None] = getattr(workers["float32"], what)
                for once in (ours, ours, theirs, theirs):  # memory is touched, loops are compiled
                    once()
                rows.append(
                    compare(
                        f"{name}, 64 MB as {precision}",
                        "GB/s",
                        lambda ours=ours: rate(ours, NBYTES, TIMES),
                        "float32",
                        lambda theirs=theirs: rate(theirs, NBYTES, TIMES),
                        runs=RUNS,
                        target=None,
                    ).to_json()
                )
    return rows


def measures() -> list[dict[str, Any]]:
    """Accuracy, bytes and GB/s next to those of float32."""
    return [*_transfers(), *_training()]
