"""Decodes and encodes many tf.Example records at once, as arrays or columns.

Records of one origin differ only in their values: all other bytes are the same. Such records are
decoded together by numpy. The rest is decoded one by one, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordio import example

_TEMPLATES = 16
"""If records of one length have more layouts than this, the others are decoded one by one."""
_SINGLE = 4
"""Decoding so few records one by one is faster."""
_FLOAT = 4
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Records whose features have the same names, kinds and numbers of values.

    Attributes:
        positions: the positions of the records in the batch.
        features: the values by name: float32 or int64 values as an array with a row for each
            record, bytes as a list for each record.
    """

    positions: Array
    features: dict[str, Array | list[list[bytes]]]


def decode(records: Sequence[bytes]) -> list[Group]:
    """Decode many serialized tf.Examples.

    Returns:
        Groups that together hold each record once; each value is what ``example.decode`` returns.

    Raises:
        RecordError: some bytes are not a tf.Example.
    """
    by_length: dict[int, list[int]] = {}
    for position, record in enumerate(records):
        by_length.setdefault(len(record), []).append(position)
    return [
        group for found in by_length.values() for group in _of_one_length(records, np.array(found))
    ]


def encode(columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
    """Serialize tf.Examples of one value per column, each as ``example.encode`` does.

    Args:
        columns: the values of each feature, one for each record; None: the record lacks it.

    Raises:
        RecordError: a value cannot be stored.
    """
    parts = [_encode_column(name, values) for name, values in sorted(columns.items())]
    return [example.join(row) for row in zip(*parts, strict=True)]


def _encode_column(name: str, values: Sequence[Any]) -> list[bytes]:
    match set(map(type, values)):
        case kinds if kinds == {float}:
            head = example.encode_feature(name, 0.0)[:-_FLOAT]
            with np.errstate(over="ignore"):  # becomes an infinity, as in a single record
                packed = np.array(values).astype("<f4").tobytes()
            return [head + packed[at : at + _FLOAT] for at in range(0, len(packed), _FLOAT)]
        case kinds if kinds == {bytes}:
            widths = map(len, values)
            heads = {width: _head(name, bytes(width), width) for width in set(widths)}
            return [heads[len(value)] + value for value in values]
        case kinds if kinds == {int} and min(values) >= _MIN_INT64 and max(values) <= _MAX_INT64:
            packed, ends = example.encode_varints(np.array(values, np.int64))
            heads = {
                width: _head(
                    name, -1 if width == example.MAX_VARINT_BYTES else 1 << 7 * (width - 1), width
                )
                for width in range(1, example.MAX_VARINT_BYTES + 1)
            }
            places = zip([0, *ends], ends, strict=False)
            return [heads[end - begin] + packed[begin:end] for begin, end in places]
    return [b"" if value is None else example.encode_feature(name, value) for value in values]


def _head(name: str, value: bytes | int, width: int) -> bytes:
    """Return the bytes before the octets of all values of this width."""
    part = example.encode_feature(name, value)
    return part[: len(part) - width]


def _of_one_length(records: Sequence[bytes], positions: Array) -> list[Group]:
    groups: list[Group] = []
    joined = b"".join([records[at] for at in positions.tolist()])
    octets = np.frombuffer(joined, np.uint8).reshape(len(positions), len(records[positions[0]]))
    for _ in range(_TEMPLATES):
        if len(positions) <= _SINGLE:
            break
        template = _Template.of(records[positions[0]])
        if template is None:
            groups.append(_single(records, positions[0]))
            positions, octets = positions[1:], octets[1:]
            continue
        same = template.matches(octets)
        features = template.features(octets if same.all() else octets[same])
        groups.append(Group(positions[same], features))
        positions, octets = positions[~same], octets[~same]
    return groups + [_single(records, position) for position in positions]


def _single(records: Sequence[bytes], position: int) -> Group:
    features = example.decode(records[position])
    return Group(
        np.array([position]),
        {
            name: [value] if isinstance(value, list) else value[np.newaxis]
            for name, value in features.items()
        },
    )


@dataclass(frozen=True, slots=True)
class _Feature:
    """The position of a feature's values in a record."""

    name: str
    kind: int
    spans: list[tuple[int, int]]


class _Template:
    """The layout of a record.

    Args:
        record: one with this layout.
        features: the features of the record.
    """

    def __init__(self, record: bytes, features: list[_Feature]) -> None:
        self._features = features
        first = np.frombuffer(record, np.uint8)
        # Continuation bits say where a varint ends, and belong to the layout.
        self._mask = np.full(len(first), 0xFF, np.uint8)
        for feature in features:
            for begin, end in feature.spans:
                self._mask[begin:end] = 0x80 if feature.kind == example.INTEGERS else 0
        self._layout = first & self._mask
        self._fixed = np.flatnonzero(self._mask)

    @classmethod
    def of(cls, record: bytes) -> _Template | None:
        """Return the layout of a record that ``example.encode`` has written; None for others."""
        try:
            features = _locate(record)
        except _Unusual:
            return None
        return cls(record, features)

    def matches(self, octets: Array) -> Array:
        """Return a mask of the rows of bytes that have this layout."""
        fixed = self._fixed
        same: Array = ((octets[:, fixed] & self._mask[fixed]) == self._layout[fixed]).all(1)
        return same

    def features(self, octets: Array) -> dict[str, Array | list[list[bytes]]]:
        """Return the values in rows of bytes that have this layout."""
        return {each.name: self._values(each, octets) for each in self._features}

    def _values(self, feature: _Feature, octets: Array) -> Array | list[list[bytes]]:
        if feature.kind == example.BYTES:
            columns = [_texts(octets, *span) for span in feature.spans]
            return [list(row) for row in zip(*columns, strict=True)]
        if not feature.spans:
            return np.empty((len(octets), 0), np.float32)
        ((begin, end),) = feature.spans
        if feature.kind == example.FLOATS:
            packed = np.ascontiguousarray(octets[:, begin:end])
            return packed.view("<f4").astype(np.float32, copy=False)
        ends = np.flatnonzero(self._layout[begin:end] < 0x80) + begin
        values = np.zeros((len(octets), len(ends)), np.uint64)
        start = begin
        for number, stop in enumerate(ends.tolist()):
            for place in range(stop, start - 1, -1):
                values[:, number] <<= np.uint64(7)
                values[:, number] |= octets[:, place] & np.uint8(0x7F)
            start = stop + 1
        return values.astype(np.int64)


def _texts(octets: Array, begin: int, end: int) -> list[bytes]:
    width, content = end - begin, octets[:, begin:end].tobytes()
    if not width:
        return [b""] * len(octets)
    return [content[at : at + width] for at in range(0, len(content), width)]


# --- the layout of a record --------------------------------------------------------------------


class _Unusual(Exception):
    """A record that ``example.encode`` would not have written."""


def _locate(record: bytes) -> list[_Feature]:
    begin, end = _only(record, 0, len(record), 1)
    features: dict[str, _Feature] = {}
    while begin < end:
        _, start, stop = _next(record, begin, end, (1,))
        _, name_at, name_end = _next(record, start, stop, (1,))
        list_at, list_end = _only(record, name_end, stop, 2)
        name = record[name_at:name_end].decode(errors="surrogateescape")
        if name in features or not name.isprintable():
            raise _Unusual
        features[name] = _locate_feature(name, record, list_at, list_end)
        begin = stop
    return list(features.values())


def _locate_feature(name: str, record: bytes, at: int, end: int) -> _Feature:
    if at == end:
        raise _Unusual
    kind, start, stop = _next(record, at, end, (example.BYTES, example.FLOATS, example.INTEGERS))
    if stop != end:
        raise _Unusual
    if kind != example.BYTES:
        span = _only(record, start, stop, 1)
        if kind == example.FLOATS and (span[1] - span[0]) % 4:
            raise _Unusual
        if kind == example.INTEGERS and not _are_varints(record[span[0] : span[1]]):
            raise _Unusual
        return _Feature(name, kind, [span])
    spans = []
    while start < stop:
        _, text_at, start = _next(record, start, stop, (1,))
        spans.append((text_at, start))
    return _Feature(name, kind, spans)


def _are_varints(packed: bytes) -> bool:
    widths, width = [], 0
    for octet in packed:
        width += 1
        if octet < 0x80:
            widths.append(width)
            width = 0
    return bool(widths) and not width and max(widths) <= example.MAX_VARINT_BYTES


def _only(record: bytes, at: int, end: int, number: int) -> tuple[int, int]:
    """Return the content of a message's only field."""
    _, start, stop = _next(record, at, end, (number,))
    if stop != end:
        raise _Unusual
    return start, stop


def _next(record: bytes, at: int, end: int, numbers: tuple[int, ...]) -> tuple[int, int, int]:
    """Return number, begin and end of the field at an offset; the field has a length."""
    if at >= end:
        raise _Unusual
    tag, at = record[at], at + 1
    if tag & 7 != 2 or tag >> 3 not in numbers:
        raise _Unusual
    size = shift = 0
    while True:
        if at >= end or shift > 28:
            raise _Unusual
        octet, at = record[at], at + 1
        size |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    if at + size > end:
        raise _Unusual
    return tag >> 3, at, at + size
