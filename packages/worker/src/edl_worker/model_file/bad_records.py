"""Names the record that the input function has failed on, by its file and line.

The error itself knows no record: ``tf.data`` reads ahead, shuffles, and calls functions of whole
batches. So the records are read again, and the function runs on halves of them until one is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import recordio
import recordio.example
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch, Blocks
from edl_worker.model_file.row_order import RowOrder

Batches = Callable[[Blocks], Iterator[Batch]]
"""Runs the input function on records."""

_ABOUT_RECORDS = frozenset((ErrorCode.USER_CODE, ErrorCode.SHAPE_MISMATCH, ErrorCode.DATA_DAMAGED))
_SEARCH_S = 60.0
"""How long a search may take; it reads and parses each record of a task twice at most."""

_MAX_BYTES = 256 << 20
"""Of records that are searched, which are all in memory."""

_OTHERS = 4
"""Other records that show whether the function fails on every record."""

_MAX_CHARACTERS = 80


class BadRecordError(EdlError):
    """An error whose place is a single record."""


class LabelError(EdlError):
    """A label that the loss cannot take; the place is that of the loss."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in a row of one file.

    Attributes:
        start: the number of the first.
        read: yields them as they are in the file, in blocks.
        order: the columns that the model file gets.
        place: says where the record with a number is.
    """

    start: int
    read: Blocks
    order: RowOrder
    place: Callable[[int], str]


def place_by_number(uri: str) -> Callable[[int], str]:
    """Return what names the records of a model file's own reader, which may know no lines."""
    return lambda record: f"{uri}, record {record}"


@dataclass(frozen=True, slots=True)
class _Record:
    content: bytes
    number: int
    of: Records

    def arrange(self) -> Iterator[list[bytes]]:
        return self.of.order.arrange(lambda: iter([[self.content]]))


def explain_bad_records(
    task: Batches, run: Batches, blocks: Blocks, records: Callable[[], Sequence[Records]]
) -> Generator[Batch, None, None]:
    """Yield the minibatches of a task; an error of the input function names the bad record.

    Args:
        task: runs the input function, without minibatches that are in the model already.
        run: runs it, and leaves nothing out.
        blocks: the records, in the order in which the function gets them.
        records: the same records as they are in their files.

    Raises:
        EdlError: as ``task``, or ``BadRecordError``.
    """
    try:
        yield from task(blocks)
    except EdlError as error:
        if error.code not in _ABOUT_RECORDS:
            raise
        named = _name_record(error, run, records)
        if named is None:
            raise
        raise named from error


def _name_record(
    error: EdlError, batches: Batches, records: Callable[[], Sequence[Records]]
) -> EdlError | None:
    search = _Search(error.code, batches, time.monotonic() + _SEARCH_S)
    try:
        every = _read(records())
        if (found := search.find(every)) is None:
            return None
        number, is_alone = found
        if not is_alone and error.code == ErrorCode.USER_CODE:
            return None  # the function fails, whatever the records
        record = every[number]
        place = record.of.place(record.number)
    except (recordio.RecordError, OSError, EdlError):  # not readable again, or no time is left
        return None
    kind = "row" if record.of.order.columns else "record"
    shown = _show_record(record.content, is_row=kind == "row")
    is_label = isinstance(error, LabelError)
    keeps_remedy = is_label or not is_alone or error.code == ErrorCode.DATA_DAMAGED
    joint = " and " if is_label else ", read by "
    return BadRecordError(
        error.code,
        f"{error.what}; {'' if is_alone else 'such as '}the {kind} {shown} at {place}",
        where=joint.join(filter(None, (place, error.where))),
        remedy=error.remedy
        if keeps_remedy
        else f"Correct or remove this {kind}, or let the input function take it, too. "
        "`edl data inspect --check FILE` finds rows with other numbers of fields.",
        detail=error.detail,
    )


def _read(records: Sequence[Records]) -> list[_Record]:
    every, nbytes = [], 0
    for part in records:
        number = part.start
        for block in part.read():
            for content in block:
                every.append(_Record(content, number, part))
                number += 1
                nbytes += len(content)
            if nbytes > _MAX_BYTES:
                return every
    return every


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for a record on which the input function fails.

    Attributes:
        code: of the errors that count.
        ends: the time on the monotonic clock when it gives up.
    """

    code: ErrorCode.ValueType
    batches: Batches
    ends: float

    def find(self, records: Sequence[_Record]) -> tuple[int, bool] | None:
        """Return the first such record, and whether it is wrong where some others are right.

        The first record is part of every attempt: a record may be wrong only because it differs
        from the others, such as an image of another size.
        """
        first, stop = 0, len(records)
        if not records:
            return None
        while stop - first > 1:
            middle = (first + stop) // 2
            if self._fails([*records[: min(first, 1)], *records[first:middle]]):
                stop = middle
            else:
                first = middle
        fails_alone = self._fails([records[first]])
        if not fails_alone and not (first and self._fails([records[0], records[first]])):
            return None
        others = [at for at in _spread(len(records)) if at != first]
        others_fail = any(self._fails([records[at]]) for at in others)
        return first, fails_alone and bool(others) and not others_fail

    def _fails(self, records: Sequence[_Record]) -> bool:
        if time.monotonic() > self.ends:
            raise TimeoutError
        try:
            for _ in self.batches(lambda: _arrange(records)):
                pass
        except EdlError as error:
            return error.code == self.code
        return False


def _arrange(records: Sequence[_Record]) -> Iterator[list[bytes]]:
    for record in records:
        yield from record.arrange()


def _spread(count: int) -> list[int]:
    return sorted({count * at // _OTHERS for at in range(_OTHERS)} | {count - 1})


def _show_record(record: bytes, *, is_row: bool) -> str:
    """Return some of the content of a record."""
    if is_row:
        return f"{_cut(record.decode('utf-8', errors='backslashreplace'))!r}"
    try:
        features = recordio.example.decode(record)
    except recordio.RecordError:
        return f"of {len(record)} bytes, {_cut(repr(record)[1:])}"
    values = ", ".join(f"{name}={_show(value)}" for name, value in features.items())
    return f"{{{_cut(values)}}}"


def _show(value: recordio.example.Value) -> str:
    if len(value) != 1:
        return f"{len(value)} values"
    one: Any = value[0]
    if isinstance(one, bytes):
        return f"{len(one)} bytes" if len(one) > _MAX_CHARACTERS // 2 else repr(one)[1:]
    return f"{one:g}" if isinstance(one, np.floating) else str(one)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."
