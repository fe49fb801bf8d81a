"""tf.Example records without TensorFlow.

The wire format is protobuf's: Example{1: Features}, Features{1: map entries}, an entry
{1: name, 2: Feature}, Feature{1: BytesList | 2: FloatList | 3: Int64List}, and in each list
field 1, repeated (numbers packed or not). As protobuf has it, the last of several entries of a
name counts, the last kind of list in a feature counts, and lists of one kind are joined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from recordio.errors import RecordError

Value = np.ndarray[Any, Any] | list[bytes]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
BYTES, FLOATS, INTEGERS = 1, 2, 3
"""The field numbers of the kinds of lists."""
MAX_VARINT_BYTES = 10
"""The bytes of the longest varint."""
_OCTETS = [bytes((value,)) for value in range(0x80)]
"""The varints of one byte: nearly all lengths and tags."""
_HEADS = {
    number: [bytes((number << 3 | _LENGTH, size)) for size in range(0x80)]
    for number in (1, BYTES, FLOATS, INTEGERS)
}
"""The tag and length of short fields."""
_INT64 = range(-(2**63), 2**63)
_FLOAT = struct.Struct("<f")
_FLOAT_HEAD = _HEADS[FLOATS][_FLOAT.size + 2] + _HEADS[1][_FLOAT.size]
"""The bytes before the octets of a list of one float."""
_MAX_LOOPED = 16
"""The number of values up to which a loop is faster than numpy."""


class _Malformed(Exception):
    """The bytes are not a message of the wire format."""


def decode(record: bytes) -> dict[str, Value]:
    """Return the features of a serialized tf.Example, by name.

    Returns:
        float lists as float32 arrays and int64 lists as int64 arrays of one dimension, bytes
        lists as lists of bytes. A feature without a value is an empty list.

    Raises:
        RecordError: the bytes are not a tf.Example.
    """
    features: dict[str, Value] = {}
    try:
        record = bytes(record)
        for example in _messages(record, 1):
            for entry in _messages(example, 1):
                # The separate parts of one message are merged by joining their bytes.
                name = b"".join(list(_messages(entry, 1))[-1:])
                features[name.decode()] = _feature(b"".join(_messages(entry, 2)))
    except (_Malformed, UnicodeDecodeError) as error:
        raise RecordError(f"the record is not a tf.Example: {error}") from error
    return features


def encode(features: Mapping[str, Any]) -> bytes:
    """Serialize values by name as a tf.Example; equal values always give equal bytes.

    Args:
        features: bytes, str, numbers, or sequences or arrays of these (flattened); bool and
            integers become int64 lists, floats float lists. An empty list has no kind.

    Raises:
        RecordError: a value is none of these, or an integer does not fit 64 bits.
    """
    return join(encode_feature(name, value) for name, value in sorted(features.items()))


def encode_feature(name: str, value: Any) -> bytes:
    """Encode the part of a tf.Example that holds one feature; see ``encode``.

    Raises:
        RecordError: the value cannot be stored.
    """
    return _with_length(1, _key(name) + _with_length(2, _single(value) or _list(name, value)))


def join(parts: Iterable[bytes]) -> bytes:
    """Join features that ``encode_feature`` has made, in the order of their names."""
    return _with_length(1, b"".join(parts))


def _fields(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, wire type and content of each field of a message; a varint as its bytes."""
    at, end = 0, len(content)
    while at < end:
        tag, at = _varint(content, at)
        begin, kind = at, tag & 7
        if not 0 < tag >> 3 < 1 << 29:
            raise _Malformed(f"field number {tag >> 3} is invalid")
        if kind == _LENGTH:
            size, begin = _varint(content, at)
            at = begin + size
        elif kind == _VARINT:
            _, at = _varint(content, at)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise _Malformed(f"unknown wire type {kind}")
        if at > end:
            raise _Malformed("a field is longer than its message")
        yield tag >> 3, kind, content[begin:at]


def _messages(content: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the fields of one number that have a length."""
    for number, kind, part in _fields(content):
        if number == wanted and kind == _LENGTH:
            yield part


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        if at >= len(content):
            raise _Malformed("a number is truncated")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise _Malformed(f"a number has more than {MAX_VARINT_BYTES} bytes")


def _feature(content: bytes) -> Value:
    kind = 0
    parts: list[bytes] = []
    for number, wire, part in _fields(content):
        if wire != _LENGTH or number not in (BYTES, FLOATS, INTEGERS):
            continue
        if number != kind:
            kind, parts = number, []
        parts.append(part)
    merged = b"".join(parts)
    match kind:
        case 1:
            return list(_messages(merged, 1))
        case 2:
            return _floats(merged)
        case 3:
            return _integers(merged)
    return []


def _floats(content: bytes) -> np.ndarray[Any, Any]:
    """Decode floats, each of 4 bytes, packed or single."""
    parts = []
    for number, kind, part in _fields(content):
        if number == 1 and kind in (_LENGTH, _FIXED32):
            if len(part) % 4:
                raise _Malformed("a list of floats is truncated")
            parts.append(part)
    return np.frombuffer(b"".join(parts), dtype="<f4").astype(np.float32)


def _integers(content: bytes) -> np.ndarray[Any, Any]:
    """Decode varints, packed or single: both lie one after another."""
    wanted = (_LENGTH, _VARINT)
    parts = []
    for number, kind, part in _fields(content):
        if number == 1 and kind in wanted:
            if part and part[-1] >= 0x80:
                raise _Malformed("a number is truncated")
            parts.append(part)
    packed = b"".join(parts)
    if len(packed) <= _MAX_LOOPED:
        at, found = 0, []
        while at < len(packed):
            value, at = _varint(packed, at)
            found.append(value)
        return np.array(found, dtype=np.uint64).astype(np.int64)
    octets = np.frombuffer(packed, dtype=np.uint8)
    ends = np.flatnonzero(octets < 0x80)
    begins = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - begins + 1
    widest = int(widths.max())
    if widest > MAX_VARINT_BYTES:
        raise _Malformed(f"a number has more than {MAX_VARINT_BYTES} bytes")
    values = np.zeros(len(ends), dtype=np.uint64)
    for position in range(widest):
        longer = widths > position
        bits = (octets[begins[longer] + position] & 0x7F).astype(np.uint64)
        values[longer] |= bits << np.uint64(7 * position)
    return values.astype(np.int64)


def _encode_varint(value: int) -> bytes:
    if value <= 0x7F:
        return _OCTETS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_varints(values: np.ndarray[Any, Any]) -> bytes:
    """Encode 64-bit numbers as varints, one after another."""
    bits = values.astype(np.int64).view(np.uint64)
    if len(bits) <= _MAX_LOOPED:
        return b"".join(map(_encode_varint, bits.tolist()))
    return encode_varints(values)[0]


def encode_varints(values: np.ndarray[Any, Any]) -> tuple[bytes, list[int]]:
    """Encode 64-bit numbers as varints; also return the offset behind each."""
    bits = values.astype(np.int64).view(np.uint64)
    octets = np.empty((len(bits), MAX_VARINT_BYTES), dtype=np.uint8)
    widths = np.ones(len(bits), dtype=np.int64)
    for position in range(MAX_VARINT_BYTES):
        octets[:, position] = (bits & np.uint64(0x7F)).astype(np.uint8) | 0x80
        bits = bits >> np.uint64(7)
        widths += bits > 0
    positions = np.arange(MAX_VARINT_BYTES)
    octets[np.arange(len(octets)), widths - 1] &= 0x7F
    return octets[positions < widths[:, None]].tobytes(), np.cumsum(widths).tolist()


def _with_length(number: int, content: bytes) -> bytes:
    size = len(content)
    if size <= 0x7F:
        return _HEADS[number][size] + content
    return _OCTETS[number << 3 | _LENGTH] + _encode_varint(size) + content


@lru_cache(maxsize=4096)
def _key(name: str) -> bytes:
    """Encode the key of an entry."""
    return _with_length(1, name.encode())


def _single(value: Any) -> bytes | None:
    """Encode the list of one Python value; None for other values, and where numpy must decide."""
    kind = type(value)
    if kind is bytes:
        return _with_length(BYTES, _with_length(1, value))
    if kind is float:
        try:
            return _FLOAT_HEAD + _FLOAT.pack(value)
        except OverflowError:  # becomes an infinity
            return None
    if kind is int and value in _INT64:
        return _with_length(INTEGERS, _with_length(1, _encode_varint(value & 0xFFFFFFFFFFFFFFFF)))
    return None


def _list(name: str, value: Any) -> bytes:
    texts = bytes | bytearray | memoryview | str
    if isinstance(value, texts):
        value = [value]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        value = value.reshape(-1).tolist()
    if isinstance(value, Sequence) and any(isinstance(v, texts) for v in value):
        if not all(isinstance(v, texts) for v in value):
            raise RecordError(f"feature {name!r} mixes bytes and numbers")
        parts = (v.encode() if isinstance(v, str) else bytes(v) for v in value)
        return _with_length(BYTES, b"".join(_with_length(1, part) for part in parts))
    try:
        array = np.asarray(value).reshape(-1)
    except ValueError as error:
        raise RecordError(f"feature {name!r} is not a list of numbers: {error}") from error
    if isinstance(value, Sequence) and not len(array):
        return b""
    if array.dtype.kind == "f":
        return _with_length(FLOATS, _with_length(1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "iub":
        if array.dtype.kind == "u" and len(array) and int(array.max()) >= 1 << 63:
            raise RecordError(f"feature {name!r} has an integer that does not fit int64")
        return _with_length(INTEGERS, _with_length(1, _encode_varints(array)))
    raise RecordError(f"feature {name!r} of dtype {array.dtype} cannot be stored in a tf.Example")
