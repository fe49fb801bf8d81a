"""What the first records of a file say about its columns or features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import recordio
import recordio.example
from edl_master.adapters.data_fields import describe_fields
from recordio.description import MIXED, NUMBER, TEXT, DataDescription, DataField


def describe(file: Path) -> DataDescription | None:
    return describe_fields(recordio.open_source(str(file)))


def write(file: Path, records: list[bytes]) -> Path:
    with recordio.Writer(str(file)) as writer:
        for record in records:
            writer.write(record)
    return file


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (("1", "-2.5", "1e3"), NUMBER),
        (("1", "", "NA"), NUMBER),
        (("red", '"a, b"', ""), TEXT),
        (("red", "1", ""), MIXED),
        (("1_000", "2_000"), TEXT),
        (("", "", "?"), ""),
    ],
)
def test_columns_have_the_kind_of_their_cells(
    tmp_path: Path, cells: tuple[str, ...], kind: str
) -> None:
    rows = "".join(f"{cell},1\n" for cell in cells)
    (tmp_path / "a.csv").write_text(f"x,y\n{rows}short\n")
    found = describe(tmp_path / "a.csv")
    assert found is not None
    assert found.fields == (DataField("x", kind), DataField("y", NUMBER))


def test_features_have_kind_and_number_of_their_values(tmp_path: Path) -> None:
    records = [
        {"image": np.zeros(4, np.float32), "tags": list(range(1, number % 3 + 2)), "name": b"n"}
        | ({"rare": 1} if number == 3 else {})
        for number in range(20)
    ]
    found = describe(write(tmp_path / "a.recordio", list(map(recordio.example.encode, records))))
    assert found is not None
    assert found.fields == (
        DataField("image", "float", 4),
        DataField("name", "bytes", 1),
        DataField("rare", "int64", -1, always=False),
        DataField("tags", "int64", -1),
    )


def test_a_few_records_do_not_fix_the_number_of_values(tmp_path: Path) -> None:
    file = write(tmp_path / "a.recordio", [recordio.example.encode({"x": [1, 2]})] * 3)
    found = describe(file)
    assert found is not None
    assert found.fields == (DataField("x", "int64", -1),)


def test_other_records_have_no_fields(tmp_path: Path) -> None:
    assert describe(write(tmp_path / "a.recordio", [b"plain text", b"\xff" * 9])) is None
