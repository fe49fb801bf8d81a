"""The Python API of data refuses what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

import elasticdl
from edl_proto.errors import EdlError, ErrorCode


@pytest.mark.parametrize("source", [[], ["sqlite:///a.db", "sqlite:///b.db"]])
def test_a_query_reads_exactly_one_database(tmp_path: Path, source: list[str]) -> None:
    with pytest.raises(EdlError, match="one database") as caught:
        elasticdl.convert_data(source, output=str(tmp_path / "rows"), query="SELECT 1")
    assert caught.value.code == ErrorCode.USAGE
