"""Replicated training against its peers: the digits network with one and with two workers.

One worker next to Keras ``fit`` and a plain ``tf.function`` loop; two workers next to two such
loops that exchange nothing, one thread each, which is the limit of the machine, and next to
ParameterServerStrategy at its best.

``EDL_BENCH_RUNS`` is the number of pairs (5).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from bench.jobs import peer, train, write_data
from bench.measure import compare
from bench.mnist_local import MODEL
from bench.training import PER_CLOSURE, STRATEGY

RUNS = int(os.environ.get("EDL_BENCH_RUNS", "5"))
RECORDS, BATCH, EPOCHS = 12_800, 64, 4
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


def measures() -> list[dict[str, Any]]:
    """Rates of replicated jobs next to those of their peers."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        data = write_data(work, "digits", RECORDS)
        given = "mnist", data, BATCH, EPOCHS

        def ours(workers: int) -> float:
            return train(
                *(work, *MODEL, "--strategy", "allreduce"),
                data=f"{data}/train/*.recordio",
                workers=workers,
                batch=BATCH,
                epochs=EPOCHS,
                records=RECORDS,
                overlap=False,
            )

        def independent() -> float:
            with ThreadPoolExecutor(2) as two:
                loops = [two.submit(peer, "plain_loop", *given, env=ONE_THREAD) for _ in range(2)]
                return sum(loop.result() for loop in loops)

        def strategy() -> float:
            steps = "mnist", data, BATCH, EPOCHS * RECORDS // BATCH
            return max(peer("strategy_training", *steps, k) for k in PER_CLOSURE)

        peers: list[tuple[int, str, Callable[[], float], float]] = [
            (1, "Keras fit", partial(peer, "keras_fit", *given), 1.0),
            (1, "plain tf.function loop", partial(peer, "plain_loop", *given), 0.95),
            (2, "two loops that exchange nothing", independent, 0.93),
            (2, STRATEGY, strategy, 1.2),
        ]
        return [
            compare(
                f"mnist, edl train --strategy allreduce, {workers} worker{'s'[: workers > 1]}",
                "images/s",
                partial(ours, workers),
                label,
                theirs,
                runs=RUNS,
                target=target,
            ).to_json()
            for workers, label, theirs, target in peers
        ]
