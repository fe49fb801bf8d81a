"""Rows of Arrow tables as tf.Example records, column by column."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from recordio.errors import RecordError
from recordio.example import MAX_VARINT_BYTES, encode_feature, encode_varints, join

_FLOAT_BYTES = 4
_MAX_INT64 = 2**63 - 1
_REPEATED = 2
"""How often a value comes, on average, where values are encoded once and not again and again."""


def storable_columns(schema: Any) -> list[str]:
    """Return the names of the columns that a tf.Example can hold, in the order of the table.

    These are numbers, decimals, booleans, texts, bytes, dates and timestamps, and lists of numbers,
    booleans, texts or bytes. Times of day, structures and maps are not.

    Args:
        schema: a ``pyarrow.Schema``.
    """
    return [field.name for field in schema if _is_storable(field.type)]


def _is_storable(kind: Any) -> bool:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    elif types.is_decimal(kind) or types.is_date(kind) or types.is_timestamp(kind):
        return True
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_number = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return bool(is_number) or _is_text(kind)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_binary = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(is_text or is_binary or types.is_fixed_size_binary(kind))


def as_plain(column: Any) -> Any:
    """Return a column whose decimals are floats, and whose dates and timestamps are integers.

    A date is a number of days since 1970-01-01, a timestamp a number of microseconds since then,
    in UTC; one without a zone counts as UTC. Other columns stay as they are.

    Args:
        column: a ``pyarrow.ChunkedArray`` or ``pyarrow.Array``.
    """
    import pyarrow
    from pyarrow import types

    if types.is_decimal(column.type):
        return column.cast(pyarrow.float64())
    if types.is_date(column.type):
        return column.cast(pyarrow.date32()).cast(pyarrow.int32())
    if types.is_timestamp(column.type):
        microseconds = pyarrow.timestamp("us", column.type.tz)
        return column.cast(microseconds, safe=False).cast(pyarrow.int64())
    if types.is_boolean(column.type):
        return column.cast(pyarrow.uint8())
    return column


class RowEncoder:
    """Serializes the rows of a table as tf.Examples, as ``recordio.example.encode`` does.

    A null is a feature that the record does not have.

    Args:
        table: a ``pyarrow.Table`` of columns that ``storable_columns`` names.

    Attributes:
        nbytes: the memory that it takes, about.
    """

    def __init__(self, table: Any) -> None:
        self._rows = table.num_rows
        self._columns = list(_prepare_all(table)) if table.num_rows else []
        self.nbytes = table.nbytes + sum(column.nbytes for column in self._columns)

    def encode(self, start: int, stop: int) -> list[bytes]:
        """Return the records of the rows ``start`` to ``stop`` (exclusive, at most to the end).

        Raises:
            RecordError: an integer does not fit 64 bits, or a list has a null.
        """
        stop = min(stop, self._rows)
        if start >= stop:
            return []
        if not self._columns:
            return [join(())] * (stop - start)
        parts = [column.encode(start, stop) for column in self._columns]
        return [join(features) for features in zip(*parts, strict=True)]


class _Column(Protocol):
    """The values of one feature."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes beside the table."""

    def encode(self, start: int, stop: int) -> list[bytes]:
        """Return the part of each record that holds this feature; empty where it is null."""


def _prepare_all(table: Any) -> Iterator[_Column]:
    """Yield what encodes the columns in the order of their names; floats in a row together."""
    from pyarrow import types

    columns = ((name, as_plain(table.column(name))) for name in sorted(table.column_names))
    for is_float, group in itertools.groupby(columns, lambda one: types.is_floating(one[1].type)):
        if is_float:
            yield _Floats(dict(group))
        else:
            yield from (_prepare(name, column) for name, column in group)


def _prepare(name: str, column: Any) -> _Column:
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_floating(kind):
        return _Floats({name: column.cast(kind)})
    if not (types.is_integer(kind) or _is_text(kind)):
        return _Lists(name, column)
    codes = column if types.is_dictionary(column.type) else column.dictionary_encode()
    codes = codes.unify_dictionaries()
    values = codes.chunk(0).dictionary
    if len(values) <= len(column) // _REPEATED:
        return _RepeatedValues(name, codes, values)
    column = column.cast(kind)
    return _Texts(name, column) if _is_text(kind) else _Integers(name, column)


class _RepeatedValues:
    """A column with many equal values: each is encoded once."""

    def __init__(self, name: str, codes: Any, values: Any) -> None:
        encoded = [encode_feature(name, value) for value in _python_values(values)]
        self._encoded = [*encoded, b""]  # the last one is of a null
        indices = [chunk.indices.fill_null(-1).to_numpy() for chunk in codes.chunks]
        self._indices = np.concatenate(indices)
        self.nbytes = self._indices.nbytes + sum(map(sys.getsizeof, encoded))

    def encode(self, start: int, stop: int) -> list[bytes]:
        return list(map(self._encoded.__getitem__, self._indices[start:stop].tolist()))


class _Floats:
    """Columns of floats side by side, whose parts of a record have one length."""

    nbytes = 0

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = list(columns.values())
        heads = [encode_feature(name, 0.0)[:-_FLOAT_BYTES] for name in columns]
        self._heads = [np.frombuffer(head, np.uint8) for head in heads]

    def encode(self, start: int, stop: int) -> list[bytes]:
        columns = [column.slice(start, stop - start) for column in self._columns]
        if any(column.null_count for column in columns):
            parts = [
                _without_nulls(_encode_floats([head], [column]), column)
                for head, column in zip(self._heads, columns, strict=True)
            ]
            return list(map(b"".join, zip(*parts, strict=True)))
        return _encode_floats(self._heads, columns)


def _encode_floats(heads: Sequence[Any], columns: Sequence[Any]) -> list[bytes]:
    width = sum(map(len, heads)) + _FLOAT_BYTES * len(heads)
    octets = np.empty((len(columns[0]), width), np.uint8)
    at = 0
    for head, column in zip(heads, columns, strict=True):
        with np.errstate(over="ignore"):  # too great a number becomes an infinity
            values = np.asarray(column.to_numpy()).astype("<f4")
        octets[:, at : at + len(head)] = head
        at += len(head)
        octets[:, at : at + _FLOAT_BYTES] = values.view(np.uint8).reshape(-1, _FLOAT_BYTES)
        at += _FLOAT_BYTES
    found: list[bytes] = octets.view(f"V{width}")[:, 0].tolist()
    return found


class _Integers:
    nbytes = 0

    def __init__(self, name: str, column: Any) -> None:
        self._name, self._column = name, column
        # What precedes a number depends on how many bytes it takes: its length is a part of that.
        widths = range(1, MAX_VARINT_BYTES + 1)
        self._heads = [b"", *(encode_feature(name, _value_of(width))[:-width] for width in widths)]

    def encode(self, start: int, stop: int) -> list[bytes]:
        column = self._column.slice(start, stop - start)
        values = column.fill_null(0).to_numpy()
        if values.dtype.kind == "u" and len(values) and int(values.max()) > _MAX_INT64:
            raise RecordError(f"column {self._name!r} has an integer that does not fit int64")
        octets, ends = encode_varints(values)
        begin, parts = 0, []
        for end in ends:
            parts.append(self._heads[end - begin] + octets[begin:end])
            begin = end
        return _without_nulls(parts, column)


def _value_of(width: int) -> int:
    """Return an integer whose varint has this number of bytes."""
    return 1 << 7 * (width - 1) if width < MAX_VARINT_BYTES else -1


class _Texts:
    nbytes = 0

    def __init__(self, name: str, column: Any) -> None:
        self._name, self._column = name, column

    def encode(self, start: int, stop: int) -> list[bytes]:
        values = _python_values(self._column.slice(start, stop - start))
        return [b"" if value is None else encode_feature(self._name, value) for value in values]


class _Lists:
    nbytes = 0

    def __init__(self, name: str, column: Any) -> None:
        self._name, self._column = name, column

    def encode(self, start: int, stop: int) -> list[bytes]:
        values = self._column.slice(start, stop - start).to_pylist()
        return [self._encode_one(value) for value in values]

    def _encode_one(self, value: Any) -> bytes:
        if value is None:
            return b""
        if None in value:
            raise RecordError(f"column {self._name!r} has a list with a null")
        return encode_feature(self._name, value)


def _python_values(column: Any) -> list[Any]:
    """Return the values of a column; texts as UTF-8."""
    import pyarrow

    if _is_text(column.type):
        column = column.cast(pyarrow.large_binary())
    values: list[Any] = column.to_pylist()
    return values


def _without_nulls(parts: list[bytes], column: Any) -> list[bytes]:
    if not column.null_count:
        return parts
    there = column.is_valid().to_pylist()
    return [part if valid else b"" for part, valid in zip(parts, there, strict=True)]
