"""A model file's own reader of data: ``custom_data_reader``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article, user_code_error
from edl_worker.model_file.zoo import compatibility
from recordio.formats.csvfile import join_row

RecordReader = Callable[[str, int, int], Iterator[list[bytes]]]
"""Gets a file with start and stop; yields these records in order, in blocks."""

_BLOCK_RECORDS = 256


@dataclass(frozen=True, slots=True)
class ReaderTask:
    """The task that ``read_records`` gets.

    Attributes:
        shard_name: path or address of the file.
        start: first record.
        end: the record after the last one.
    """

    shard_name: str
    start: int
    end: int


def adapt_record_reader(definition: Definition, caller: DefinitionCaller) -> RecordReader:
    """Read records with the ``read_records`` of the reader that the function returns.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    if not callable(definition.value):
        raise definition.error("is not a function", "Write custom_data_reader(data_origin).")
    readers: dict[str, Any] = {}

    def read(uri: str, start: int, stop: int) -> Iterator[list[bytes]]:
        try:
            with compatibility.provide_removed_names():
                if uri not in readers:
                    readers[uri] = _create(definition, uri)
                records = [_as_bytes(r) for r in _records(readers[uri], uri, start, stop)]
        except Exception as error:
            raise user_code_error(
                error,
                caller.zoo_root,
                code=ErrorCode.USER_CODE,
                action=f"{definition.signature} raised while it read {uri}:",
                place=definition.place,
                remedy="Fix the reader. The detail has a traceback.",
            ) from error
        if len(records) != stop - start:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"the reader yielded {len(records)} records of {uri} instead of "
                f"[{start}, {stop}), which are {stop - start}",
                where=definition.place,
                remedy="Let read_records(task) yield the records task.start to task.end.",
            )
        for first in range(0, len(records), _BLOCK_RECORDS):
            yield records[first : first + _BLOCK_RECORDS]

    return read


def _create(definition: Definition, uri: str) -> Any:
    """Return the reader of a file."""
    given = {"data_origin": uri, "records_per_task": None}
    wanted = definition.parameters()
    reader = definition.value(**{name: given[name] for name in given if name in wanted})
    if not callable(getattr(reader, "read_records", None)):
        raise TypeError(f"{definition.name} returned no reader with read_records(task)")
    return reader


def _records(reader: Any, uri: str, start: int, stop: int) -> Iterator[Any]:
    yield from itertools.islice(reader.read_records(ReaderTask(uri, start, stop)), stop - start + 1)


def _as_bytes(record: Any) -> bytes:
    """Return a record as edl reads it; the fields of a row become a row of CSV."""
    if isinstance(record, bytes):
        return record
    if isinstance(record, str):
        return record.encode()
    if hasattr(record, "numpy"):
        record = record.numpy()
    if isinstance(record, bytes):
        return record
    if not isinstance(record, list | tuple | np.ndarray):
        raise TypeError(f"read_records yielded {type_with_article(record)}, not bytes or a row")
    return join_row(
        field.decode(errors="surrogateescape") if isinstance(field, bytes) else field
        for field in record
    )
