"""Features of records that a prediction job copies next to its predictions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import recordio
import recordio.example
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Blocks
from edl_worker.model_file.input_pipeline import reading_error
from recordio.formats.csvfile import split_row

Decoder = Callable[[bytes], Mapping[str, Any]]


def read_kept_features(
    blocks: Blocks, columns: Sequence[str], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Return the wanted features of each record; without names, empty ones and nothing is read.

    Args:
        blocks: yields the records in order, in blocks.
        columns: names of the columns if the records are CSV rows, whose cells stay texts;
            otherwise empty, and the records are tf.Examples.
        names: of the features. A tf.Example may lack some of them.

    Raises:
        EdlError: from ``next``: a record cannot be read, or a column does not exist.
    """
    if not names:
        return itertools.repeat({})
    return _read_features(
        blocks, _cells(columns, names) if columns else recordio.example.decode, names
    )


def _read_features(
    blocks: Blocks, decode: Decoder, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    try:
        for block in blocks():
            for record in block:
                features = decode(record)
                yield {name: features[name] for name in names if name in features}
    except (recordio.RecordError, OSError) as error:
        raise reading_error(error) from error


def _cells(columns: Sequence[str], names: Sequence[str]) -> Decoder:
    missing = [name for name in names if name not in columns]
    if missing:
        raise EdlError(
            ErrorCode.USAGE,
            f"the data has no column {missing[0]!r}",
            where=f"--keep {','.join(names)}",
            remedy=f"Columns: {', '.join(columns)}",
        )

    def decode(record: bytes) -> dict[str, bytes]:
        cells = (cell.encode("utf-8", errors="surrogateescape") for cell in split_row(record))
        return dict(zip(columns, cells, strict=False))

    return decode
