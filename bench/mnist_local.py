"""``edl train`` with one local worker against plain Keras ``fit``: same model, data and cores.

Both are measured from the end of the first epoch to the end of the last, so that neither
imports, compiles nor starts processes in the measured time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.jobs import peer, train, write_data
from bench.measure import compare

RECORDS, EPOCHS, BATCH, RUNS = 12_800, 4, 64, 5
MODEL = ("--model-zoo", "model_zoo", "--model-def", "mnist.mnist_functional_api")


def measures() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        data = write_data(work, "digits", RECORDS)

        def ours() -> float:
            return train(
                *(work, *MODEL),
                data=f"{data}/train/*.recordio",
                workers=1,
                batch=BATCH,
                epochs=EPOCHS,
                records=RECORDS,
            )

        return [
            compare(
                "mnist, edl train, one local worker",
                "images/s",
                ours,
                "Keras fit",
                lambda: peer("keras_fit", "mnist", data, BATCH, EPOCHS),
                runs=RUNS,
                target=0.80,
            ).to_json()
        ]
