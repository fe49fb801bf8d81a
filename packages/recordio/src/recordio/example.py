"""tf.Example records without TensorFlow.

The wire format is protobuf's: Example{1: Features}, Features{1: map entries}, an entry
{1: name, 2: Feature}, Feature{1: BytesList | 2: FloatList | 3: Int64List}, and in each list
field 1, repeated (numbers packed or not).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recordio.errors import RecordError

Value = np.ndarray[Any, Any] | list[bytes]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def decode(record: bytes) -> dict[str, Value]:
    """Features of a serialized tf.Example, by name.

    Returns:
        float lists as float32 arrays and int64 lists as int64 arrays of one dimension, bytes
        lists as lists of bytes. A feature without a value is an empty list.

    Raises:
        RecordError: the bytes are no tf.Example.
    """
    try:
        features: dict[str, Value] = {}
        for number, kind, part in _fields(record):
            if number != 1 or kind != _LENGTH:
                continue
            for inner, inner_kind, entry in _fields(part):
                if inner != 1 or inner_kind != _LENGTH:
                    continue
                name, feature = b"", b""
                for field, field_kind, content in _fields(entry):
                    if field == 1 and field_kind == _LENGTH:
                        name = content
                    elif field == 2 and field_kind == _LENGTH:
                        feature += content
                features[name.decode()] = _feature(feature)
        return features
    except (struct.error, UnicodeDecodeError, IndexError, OverflowError) as error:
        raise RecordError(f"the record is no tf.Example: {error}") from error


def encode(features: Mapping[str, Any]) -> bytes:
    """A serialized tf.Example of values by name.

    Args:
        features: bytes, str, numbers, or sequences or arrays of these (flattened); bool and
            integers become int64 lists, floats float lists.

    Raises:
        RecordError: a value is none of these.
    """
    entries = bytearray()
    for name, value in sorted(features.items()):
        entry = _delimited(1, name.encode()) + _delimited(2, _list(name, value))
        entries += _delimited(1, entry)
    return _delimited(1, bytes(entries))


def _fields(content: bytes) -> list[tuple[int, int, Any]]:
    """Number, wire type and content of each field of a message."""
    found: list[tuple[int, int, Any]] = []
    at, end = 0, len(content)
    while at < end:
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(content, at)
            if at + size > end:
                raise IndexError("a field is longer than its message")
            found.append((tag >> 3, kind, content[at : at + size]))
            at += size
        elif kind == _VARINT:
            value, at = _varint(content, at)
            found.append((tag >> 3, kind, value))
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
            if at + size > end:
                raise IndexError("a field is longer than its message")
            found.append((tag >> 3, kind, content[at : at + size]))
            at += size
        else:
            raise IndexError(f"wire type {kind}")
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise IndexError("a number of more than ten bytes")


def _feature(content: bytes) -> Value:
    value: Value = []
    for number, kind, inner in _fields(content):
        if kind != _LENGTH:
            continue
        if number == 1:
            value = [part for field, k, part in _fields(inner) if field == 1 and k == _LENGTH]
        elif number == 2:
            # Packed floats are a run of 4-byte values, single ones are 4 bytes each.
            parts = [part for field, _, part in _fields(inner) if field == 1]
            value = np.frombuffer(b"".join(parts), dtype="<f4").astype(np.float32)
        elif number == 3:
            value = np.array(_integers(inner), dtype=np.int64)
    return value


def _integers(content: bytes) -> list[int]:
    numbers: list[int] = []
    for field, kind, part in _fields(content):
        if field != 1:
            continue
        if kind == _VARINT:
            numbers.append(_signed(part))
        elif kind == _LENGTH:
            at = 0
            while at < len(part):
                value, at = _varint(part, at)
                numbers.append(_signed(value))
    return numbers


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _encode_varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _delimited(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | _LENGTH) + _encode_varint(len(content)) + content


def _list(name: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | str):
        value = [value]
    if isinstance(value, Sequence) and any(isinstance(v, bytes | bytearray | str) for v in value):
        if not all(isinstance(v, bytes | bytearray | str) for v in value):
            raise RecordError(f"feature {name!r} mixes bytes and numbers")
        parts = (v.encode() if isinstance(v, str) else bytes(v) for v in value)
        return _delimited(1, b"".join(_delimited(1, part) for part in parts))
    array = np.asarray(value).reshape(-1)
    if array.dtype.kind == "f":
        return _delimited(2, _delimited(1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "iub":
        packed = b"".join(_encode_varint(int(v)) for v in array)
        return _delimited(3, _delimited(1, packed))
    if array.dtype.kind in "SU":
        parts = (str(v).encode() if array.dtype.kind == "U" else bytes(v) for v in array)
        return _delimited(1, b"".join(_delimited(1, part) for part in parts))
    raise RecordError(f"feature {name!r} of dtype {array.dtype} cannot be stored in a tf.Example")
