"""tf.Example records without TensorFlow.

The wire format is protobuf's: Example{1: Features}, Features{1: map entries}, an entry
{1: name, 2: Feature}, Feature{1: BytesList | 2: FloatList | 3: Int64List}, and in each list
field 1, repeated (numbers packed or not). protobuf decodes it; of several entries of a name, and of
several kinds of lists in a feature, the last counts. Here it is encoded without protobuf, whose
bytes are not always the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from recordio.errors import RecordError

Value = np.ndarray[Any, Any] | list[bytes]

_LENGTH = 2
"""The wire type of a field with a length."""
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


def decode(record: bytes) -> dict[str, Value]:
    """Return the features of a serialized tf.Example, by name.

    Returns:
        float lists as float32 arrays and int64 lists as int64 arrays of one dimension, bytes
        lists as lists of bytes. A feature without a value is an empty list.

    Raises:
        RecordError: the bytes are not a tf.Example.
    """
    try:
        message = _Example.FromString(bytes(record))
    except DecodeError as error:
        raise RecordError(f"the record is not a tf.Example: {error}") from error
    return {entry.key: _values(entry.value) for entry in message.features.feature}


def _values(feature: Any) -> Value:
    match feature.WhichOneof("kind"):
        case "bytes_list":
            return list(feature.bytes_list.value)
        case "float_list":
            return _floats(feature.float_list)
        case "int64_list":
            return np.array(feature.int64_list.value[:], np.int64)
    return []


def _floats(found: Any) -> np.ndarray[Any, Any]:
    count = len(found.value)
    if count > _MAX_LOOPED:
        octets = found.SerializeToString()
        begin = 1 + len(_encode_varint(_FLOAT.size * count))
        if len(octets) == begin + _FLOAT.size * count:  # the message has no unknown fields
            return np.frombuffer(octets, "<f4", offset=begin).astype(np.float32)
    return np.array(found.value[:], np.float32)


def _define_example() -> Any:
    """Return a class of messages that are encoded as tensorflow.Example, in a pool of its own."""
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    fields = {
        "BytesList": [("value", 1, many, "bytes")],
        "FloatList": [("value", 1, many, "float")],
        "Int64List": [("value", 1, many, "int64")],
        "Feature": [
            ("bytes_list", BYTES, one, "BytesList"),
            ("float_list", FLOATS, one, "FloatList"),
            ("int64_list", INTEGERS, one, "Int64List"),
        ],
        "Entry": [("key", 1, one, "string"), ("value", 2, one, "Feature")],
        "Features": [("feature", 1, many, "Entry")],
        "Example": [("features", 1, one, "Features")],
    }
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", syntax="proto3")
    for message, found in fields.items():
        described = file.message_type.add(name=message)
        if message == "Feature":
            described.oneof_decl.add(name="kind")
        for name, number, label, kind in found:
            each = described.field.add(name=name, number=number, label=label)
            if kind in fields:
                each.type, each.type_name = field.TYPE_MESSAGE, f".{kind}"
            else:
                each.type = getattr(field, f"TYPE_{kind.upper()}")
            if message == "Feature":
                each.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Example"))


_Example = _define_example()


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
