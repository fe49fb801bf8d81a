"""tf.Example without TensorFlow: by hand, round trips, damage; and against TensorFlow itself."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recordio
from recordio import example

int64 = st.integers(-(2**63), 2**63 - 1)
features_of = st.dictionaries(
    st.text(max_size=5),
    st.one_of(
        st.lists(st.binary(max_size=5), min_size=1, max_size=4),
        st.lists(int64, min_size=1, max_size=40).map(lambda v: np.array(v, dtype=np.int64)),
        st.lists(st.floats(width=32), min_size=1, max_size=40).map(
            lambda v: np.array(v, dtype=np.float32)
        ),
    ),
    max_size=4,
)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one.keys() != other.keys():
        return False
    for name, value in one.items():
        if isinstance(value, list):
            if value != other[name]:
                return False
        elif value.dtype != other[name].dtype or not np.array_equal(
            value, other[name], equal_nan=value.dtype.kind == "f"
        ):
            return False
    return True


def test_bytes_written_by_hand() -> None:
    # Example{1: Features{1: {1: "a", 2: Feature{3: Int64List{1: [1, 300, -1]}}}}}
    packed = b"\x0a\x0d\x01\xac\x02" + b"\xff" * 9 + b"\x01"
    feature = b"\x1a" + bytes([len(packed)]) + packed
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    record = b"\x0a" + bytes([len(features)]) + features
    assert example.encode({"a": [1, 300, -1]}) == record
    assert same(example.decode(record), {"a": np.array([1, 300, -1])})


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b"x", [b"x"]),
        ("ü", ["ü".encode()]),
        ([b"x", "y", bytearray(b"z"), memoryview(b"w")], [b"x", b"y", b"z", b"w"]),
        (np.array(["x", "yy"]), [b"x", b"yy"]),
        (np.array([b"x\0", b"yy"], dtype=object), [b"x\0", b"yy"]),
        (7, np.array([7])),
        (True, np.array([1])),
        ([[1, 2], [3, 4]], np.array([1, 2, 3, 4])),
        (np.array([1, 2], dtype=np.uint8), np.array([1, 2])),
        (np.array([2**63 - 1], dtype=np.uint64), np.array([2**63 - 1])),
        (1.5, np.array([1.5], dtype=np.float32)),
        ([1, 2.5], np.array([1, 2.5], dtype=np.float32)),
        (np.float16(2), np.array([2], dtype=np.float32)),
        ([], []),
        (np.array([], dtype=np.int64), np.array([], dtype=np.int64)),
        (np.array([], dtype=np.float32), np.array([], dtype=np.float32)),
    ],
)
def test_values(value: Any, decoded: Any) -> None:
    assert same(example.decode(example.encode({"a": value})), {"a": decoded})


@pytest.mark.parametrize(
    "value",
    [[1, b"x"], None, {"a": 1}, [1j], np.array([2**63], dtype=np.uint64), [2**70], [[1], [2, 3]]],
)
def test_values_that_cannot_be_stored(value: Any) -> None:
    with pytest.raises(recordio.RecordError, match="feature 'a'"):
        example.encode({"a": value})


@given(features_of)
def test_round_trip(features: dict[str, Any]) -> None:
    record = example.encode(features)
    assert same(example.decode(record), features)
    assert example.encode(dict(reversed(features.items()))) == record


@settings(max_examples=300)
@given(features_of, st.data())
def test_damage_is_an_error_or_another_example(features: dict[str, Any], data: Any) -> None:
    content = bytearray(example.encode(features))
    for _ in range(data.draw(st.integers(1, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    _only_record_errors(bytes(content[: data.draw(st.integers(0, len(content)))]))


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_any_bytes(content: bytes) -> None:
    _only_record_errors(content)


def _only_record_errors(content: bytes) -> None:
    try:
        features = example.decode(content)
    except recordio.RecordError:
        return
    for value in features.values():
        assert isinstance(value, list) or value.dtype in (np.float32, np.int64)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


class TestAgainstTensorFlow:
    @given(features=features_of)
    def test_what_is_encoded(self, tf: Any, features: dict[str, Any]) -> None:
        parsed = tf.train.Example.FromString(example.encode(features))
        assert same(self._values(parsed), features)
        assert same(example.decode(parsed.SerializeToString()), features)

    @given(features=features_of)
    def test_what_is_decoded(self, tf: Any, features: dict[str, Any]) -> None:
        record = self._message(tf, features).SerializeToString()
        assert same(example.decode(record), features)

    @settings(max_examples=300)
    @given(content=st.binary(max_size=40), features=features_of, at=st.integers(0, 300))
    def test_odd_bytes_mean_the_same(
        self, tf: Any, content: bytes, features: dict[str, Any], at: int
    ) -> None:
        """Where both take bytes for an Example, they see the same in them."""
        record = example.encode(features)
        record = record[: at % (len(record) + 1)] + content + record[at % (len(record) + 1) :]
        from google.protobuf.message import DecodeError

        with contextlib.suppress(recordio.RecordError, DecodeError):
            ours = example.decode(record)
            theirs = tf.train.Example.FromString(record)
            assert same(ours, self._values(theirs))

    def test_numbers_that_are_not_packed(self, tf: Any) -> None:
        integers = b"".join(b"\x08" + example._encode_varint(v) for v in (1, 300, 2**64 - 1))
        floats = b"\x0d" + np.float32(1.5).tobytes() + b"\x0a\x04" + np.float32(2.5).tobytes()
        record = b""
        for name, kind, content in ((b"i", 3, integers), (b"f", 2, floats)):
            feature = example._with_length(kind, content)
            entry = example._with_length(1, name) + example._with_length(2, feature)
            record += example._with_length(1, example._with_length(1, entry))
        expected = {"i": np.array([1, 300, -1]), "f": np.array([1.5, 2.5], dtype=np.float32)}
        assert same(example.decode(record), expected)
        assert same(self._values(tf.train.Example.FromString(record)), expected)

    def test_a_long_list_of_floats_with_a_field_of_a_later_version(self, tf: Any) -> None:
        values, later = np.arange(40, dtype=np.float32), b"\x3a\x03new"
        packed = example._encode_varint(160)
        content = b"\x0a" + packed + values.tobytes() + later
        feature = b"\x12" + example._encode_varint(len(content)) + content
        entry = example._with_length(1, b"x") + example._with_length(2, feature)
        record = example._with_length(1, example._with_length(1, entry))
        assert same(example.decode(record), {"x": values})
        assert same(self._values(tf.train.Example.FromString(record)), {"x": values})

    def test_the_parsing_op_reads_it(self, tf: Any) -> None:
        record = example.encode({"x": np.arange(6.0).reshape(2, 3), "y": 7, "z": b"\0\xff"})
        parsed = tf.io.parse_single_example(
            record,
            {
                "x": tf.io.FixedLenFeature([2, 3], tf.float32),
                "y": tf.io.FixedLenFeature([], tf.int64),
                "z": tf.io.FixedLenFeature([], tf.string),
            },
        )
        assert parsed["x"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert (parsed["y"].numpy(), parsed["z"].numpy()) == (7, b"\0\xff")

    @staticmethod
    def _message(tf: Any, features: dict[str, Any]) -> Any:
        message = tf.train.Example()
        for name, value in features.items():
            feature = message.features.feature[name]
            if isinstance(value, list):
                feature.bytes_list.value.extend(value)
            elif value.dtype == np.float32:
                feature.float_list.value.extend(value.tolist())
            else:
                feature.int64_list.value.extend(value.tolist())
        return message

    @staticmethod
    def _values(message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, feature in message.features.feature.items():
            match feature.WhichOneof("kind"):
                case "bytes_list":
                    found[name] = list(feature.bytes_list.value)
                case "float_list":
                    found[name] = np.array(feature.float_list.value, dtype=np.float32)
                case "int64_list":
                    found[name] = np.array(feature.int64_list.value, dtype=np.int64)
                case _:
                    found[name] = []
        return found
