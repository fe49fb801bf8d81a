"""The jobs that show what something costs at each step: their steps are short."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.jobs import train, write_data
from bench.mnist_local import MODEL

_CLICKS = "--model-zoo", "bench/models", "--model-def", "clicks"
_JOBS = (
    # name, what writes its data, records, minibatch, epochs, options
    ("mnist", "digits", 12_800, 64, 4, MODEL),
    ("clicks", "clicks", 100_000, 512, 6, _CLICKS),
)


@dataclass(frozen=True, slots=True)
class SmallJob:
    """A job of two workers whose data is there.

    Attributes:
        name: of its model.
        work: the folder of data and jobs.
        run: trains it, and gives records per second; takes ``edl``, the command.
    """

    name: str
    work: Path
    run: partial[float]


def small_jobs() -> Iterator[SmallJob]:
    """One after the other; the folder of one is gone with the next one."""
    for name, tool, records, batch, epochs, options in _JOBS:
        with tempfile.TemporaryDirectory() as place:
            work = Path(place)
            data = write_data(work, tool, records)
            run = partial(
                train,
                *(work, *options),
                data=f"{data}/train/*.recordio",
                workers=2,
                batch=batch,
                epochs=epochs,
                records=records,
            )
            yield SmallJob(name, work, run)
