"""Parts of predictions as workers write them, and outputs that join them."""

from __future__ import annotations

from pathlib import Path

import recordio
from edl_master.adapters.part_files import OutputFormat
from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.core.identifiers import HeldLease, TaskKey, TaskType, Token
from edl_master.core.tasks import TaskPartition

SIZES = (25, 0, 12)
CUT = TaskPartition(SIZES, 10)  # tasks of 10, 10, 5; 10, 2
FORMAT = OutputFormat()
URIS = ("/in/a.recordio", "/in/b.csv", "/in/c.tfrecord")


def lease(number: int, token: int = 1) -> HeldLease:
    return HeldLease(TaskKey(TaskType.PREDICTION, 0, number), Token(token))


def predict(
    predictions: PredictionOutput, number: int, token: int = 1, count: int | None = None
) -> int:
    """Write a task's part as a worker does; returns how many predictions are in it."""
    records = CUT.range(number)
    length = records.stop - records.start if count is None else count
    with recordio.Writer(predictions.part_of(lease(number, token))) as writer:
        for record in range(records.start, records.start + length):
            writer.write(b"%d/%d by %d" % (records.file, record, token))
    return length


def complete(predictions: PredictionOutput, number: int, token: int = 1) -> None:
    with predictions.completing(lease(number, token), predict(predictions, number, token)):
        pass


def content(path: Path) -> list[bytes]:
    source = recordio.open_source(str(path), format="recordio")
    return list(source.read(0, source.count()))


def successor(tmp_path: Path, output: str = "") -> PredictionOutput:
    """Return the prediction output as the job's next master opens it."""
    return PredictionOutput(
        tmp_path / "parts", "job", output or str(tmp_path / "out"), URIS, CUT, "cd34", FORMAT
    )
