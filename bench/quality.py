"""What kills cost in accuracy: jobs under mixed kills next to undisturbed jobs, by seed.

A small model of the digits with Adam and a learning-rate schedule, two workers. Each seed trains
four times: async and sync, disturbed and not. A permutation test over the pairs says how probable a
difference of means as large as this would be if kills made none.

``EDL_BENCH_SEEDS`` is the number of seeds (10), ``EDL_BENCH_EPOCHS`` that of epochs (40),
``EDL_BENCH_KILLS`` that of kills in each disturbed job (8). With ``EDL_BENCH_RESULTS``, a file, a
later call continues where an earlier one has ended; ``EDL_BENCH_MINUTES`` is the time after which
no pair of jobs begins any more.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Measure

sys.path.insert(0, str(ROOT / "tools"))

from results_file import ResultsFile

import digits
from chaos.faults import FAULTS, Fault, schedule
from chaos.job import Job

SEEDS = int(os.environ.get("EDL_BENCH_SEEDS", "10"))
EPOCHS = int(os.environ.get("EDL_BENCH_EPOCHS", "40"))
KILLS = int(os.environ.get("EDL_BENCH_KILLS", "8"))
MINUTES = float(os.environ.get("EDL_BENCH_MINUTES", "inf"))
RESULTS = os.environ.get("EDL_BENCH_RESULTS", "")
METRICS = ("accuracy", "loss")
EVERY_S = 1.5
END_S = 900.0
_MIXED = [
    kind for kind in FAULTS if kind.action.name in ("kill", "term") and kind.role.name != "client"
]


def measures() -> list[dict[str, Any]]:
    """Mean accuracy and loss on digits that were held out."""
    results = ResultsFile(Path(RESULTS) if RESULTS else None, ("update", "seed", "kills", "epochs"))
    pairs: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {}
    deadline = time.monotonic() + 60 * MINUTES
    # A seed of both ways comes before the next seed of either.
    for seed, update in itertools.product(range(SEEDS), ("async", "sync")):
        if time.monotonic() > deadline and not _is_known(results, update, seed):
            continue
        pair = _result(results, update, seed, KILLS), _result(results, update, seed, 0)
        pairs.setdefault(update, []).append(pair)
        print(f"  {update}, seed {seed}: under kills, and undisturbed: {pair}", file=sys.stderr)
    rows = [
        _compare(update, metric, [(a[metric], b[metric]) for a, b in found])
        for update, found in pairs.items()
        for metric in METRICS
    ]
    return [row.to_json() for row in rows]


def _is_known(results: ResultsFile, update: str, seed: int) -> bool:
    kinds = ({"update": update, "seed": seed, "kills": kills} for kills in (KILLS, 0))
    return all(results.find(**kind, epochs=EPOCHS) is not None for kind in kinds)


def _result(results: ResultsFile, update: str, seed: int, kills: int) -> dict[str, float]:
    """Return the metrics of a job that an earlier call trained, or that this call trains."""
    what = {"update": update, "seed": seed, "kills": kills, "epochs": EPOCHS}
    found = results.find(**what)
    if found is None:
        # The supervisor writes the report beside the model a moment after the job is over.
        with tempfile.TemporaryDirectory(
            prefix="edl-quality-", ignore_cleanup_errors=True
        ) as place:
            found = _train(Path(place), update, seed, kills)
        results.add(found, **what)
    return {metric: float(found[metric]) for metric in METRICS}


def _compare(update: str, metric: str, pairs: list[tuple[float, float]]) -> Measure:
    disturbed, undisturbed = [a for a, _ in pairs], [b for _, b in pairs]
    print(
        f"  {metric}, {update}: under kills {_spread(disturbed)}, undisturbed"
        f" {_spread(undisturbed)}; p = {probability([a - b for a, b in pairs]):.3f}",
        file=sys.stderr,
    )
    return Measure(
        name=f"{metric}, {update}, {KILLS} kills",
        value=statistics.median(disturbed),
        unit="",
        peer="undisturbed",
        peer_value=statistics.median(undisturbed),
        ratio=statistics.median(a / b for a, b in pairs),
        target=0.99 if metric == "accuracy" else None,
        runs=pairs,
    )


def _spread(values: Sequence[float]) -> str:
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.4f} ± {sd:.4f}"


def probability(differences: Sequence[float]) -> float:
    """Return the share of all choices of signs whose mean is at least as far from 0 as this one.

    That is the permutation test for pairs, exact; 1 if nothing differs.
    """
    seen = abs(sum(differences))
    choices = list(itertools.product((1, -1), repeat=len(differences)))
    as_far = sum(
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= seen - 1e-12
        for signs in choices
    )
    return as_far / len(choices)


def _train(place: Path, update: str, seed: int, kills: int) -> dict[str, float]:
    """Train a job; return its last evaluation."""
    data = place / "digits"
    if not data.exists():
        digits.make(data)
    name = f"quality-{update}-{seed}-{kills}"
    arguments = [
        *("train", "--model-zoo", str(ROOT / "bench" / "models"), "--model-def", "digits_dense"),
        *("--data", f"{data}/train/*.recordio", "--validation-data", f"{data}/test/*.recordio"),
        *("--num-epochs", str(EPOCHS), "--minibatch-size", "32", "--records-per-task", "128"),
        *("--update", update, "--seed", str(seed), "--output", str(place / f"{name}-model")),
    ]
    job = Job(place / "home", name, arguments, 0, place / "disk")
    try:
        done = _disturb(job, schedule(seed, EVERY_S, _MIXED), kills)
        until = time.monotonic() + END_S
        while not job.is_over:
            if time.monotonic() > until:
                raise RuntimeError(f"{name} does not end: {job.status()}")
            time.sleep(0.1)
        status = job.status()
    finally:
        job.close()
    if status["state"] != "SUCCEEDED" or done < kills:
        raise RuntimeError(
            f"{name}, {done} of {kills} kills: {status['state']} {status.get('error')}"
        )
    return {metric: float(status["metrics"][metric]) for metric in METRICS}


def _disturb(job: Job, faults: Iterator[Fault], kills: int) -> int:
    """Inject so many kills, each once the job trains; return how many the job lived to see."""
    done = 0
    while done < kills and not job.is_over:
        fault = next(faults)
        before = _trained_records(job)
        while _trained_records(job) <= before and not job.is_over:
            time.sleep(0.05)
        time.sleep(fault.after_s)
        if fault.concerns(job) and (targets := fault.targets(job)) and not job.is_over:
            fault.inject(job, targets)
            done += 1
    return done


def _trained_records(job: Job) -> int:
    return int(job.status().get("progress", {}).get("records_done", 0))
