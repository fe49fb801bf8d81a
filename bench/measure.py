"""Reports of benchmarks, and how pairs of timings become one number."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure next to its peer's from the same run.

    Attributes:
        value, peer_value: medians over the runs, in ``unit``.
        ratio: median of the ratios run by run, so that a machine whose speed drifts
            does not spoil the comparison; above 1 is better than the peer when more is
            better.
        target: the ratio to reach.
        runs: the single (value, peer_value) pairs.
    """

    name: str
    value: float
    unit: str
    peer: str
    peer_value: float
    ratio: float
    target: float | None
    runs: list[tuple[float, float]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: str,
    theirs: Callable[[], float],
    *,
    runs: int,
    target: float | None,
) -> Measure:
    """Run both in turn, ``runs`` times, and compare pair by pair."""
    pairs = []
    for run in range(1, runs + 1):
        pairs.append((ours(), theirs()))
        a, b = pairs[-1]
        print(f"  {name}, {run} of {runs}: {a:,.6g} / {b:,.6g} {unit}", file=sys.stderr, flush=True)
    return Measure(
        name=name,
        value=statistics.median(a for a, _ in pairs),
        unit=unit,
        peer=peer,
        peer_value=statistics.median(b for _, b in pairs),
        ratio=statistics.median(a / b for a, b in pairs),
        target=target,
        runs=pairs,
    )


@contextmanager
def run_module(*args: str) -> Iterator[str]:
    """A process of the bench, and the first line that it prints."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        [sys.executable, "-m", *args], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
