"""Jobs that read Parquet files as they are."""

from __future__ import annotations

from pathlib import Path

import counting
import pyarrow
from conftest import Edl
from pyarrow import parquet

TOTAL, EPOCHS = 700, 2


def test_every_row_trains_the_model_once_per_epoch(edl: Edl, tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    # Row groups, files and tasks end at different rows.
    for number, (start, stop) in enumerate(((0, 430), (430, TOTAL))):
        rows = pyarrow.table({"number": range(start, stop), "unused": ["text"] * (stop - start)})
        parquet.write_table(rows, data / f"{number}.parquet", row_group_size=130)
    edl(*counting.train(data, TOTAL, output, "--num-workers", "2", epochs=EPOCHS))
    counting.check(output, TOTAL, EPOCHS)
