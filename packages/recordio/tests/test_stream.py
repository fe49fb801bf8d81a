"""Reading a file from its beginning to its end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from recordio.storage.stream import streaming


@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_a_skip_ends_at_the_end_of_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"0123456789") if name.endswith(".gz") else b"0123456789")
    with streaming(str(path)) as stream:
        stream.skip_to(4)
        assert (stream.offset, stream.read(2)) == (4, b"45")
        stream.skip_to(99)
        assert (stream.offset, stream.read(1)) == (10, b"")
        assert stream.remaining in (0, None)
