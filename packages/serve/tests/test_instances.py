"""JSON of requests as records."""

from __future__ import annotations

from typing import Any

import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_serve.instances import encode_instances, example_instance, find_lacking
from recordio import example
from recordio.description import NUMBER, TEXT, DataDescription, DataField, Form

EXAMPLES = DataDescription(
    Form.EXAMPLES,
    (DataField("age", "float"), DataField("city", "bytes"), DataField("counts", "int64", 2)),
)
TABLE = DataDescription(
    Form.TABLE, (DataField("age", NUMBER), DataField("city", TEXT), DataField("label", NUMBER))
)


def encode_one(instance: Any, data: DataDescription | None = EXAMPLES) -> bytes:
    (record,) = encode_instances([instance], data).contents
    return record


def refuse(instances: Any, data: DataDescription | None = EXAMPLES) -> str:
    with pytest.raises(EdlError) as caught:
        encode_instances(instances, data)
    assert caught.value.code == ErrorCode.USAGE
    assert caught.value.remedy
    return caught.value.what


def test_features_have_the_types_of_the_training_data() -> None:
    record = encode_one({"age": 3, "city": "Orléans", "counts": [[1], [2.0]]})
    assert record == example.encode({"age": [3.0], "city": ["Orléans"], "counts": [1, 2]})
    assert encode_one({"age": None, "city": {"b64": "AP8="}}) == example.encode(
        {"city": [b"\x00\xff"]}
    )


def test_rows_have_the_columns_in_the_order_of_the_training_data() -> None:
    found = encode_instances([{"city": 'a "b", c', "age": 1.5}, {"city": None, "age": True}], TABLE)
    assert found.columns == ("age", "city")
    assert list(found.contents) == [b'1.5,"a ""b"", c"', b"1,"]


def test_columns_that_rows_lack_are_found() -> None:
    rows = encode_instances([{"city": "a"}], TABLE)
    assert find_lacking(rows, TABLE) == ["age", "label"]
    assert find_lacking(encode_instances(["line"], None), None) == []


def test_records_of_unknown_data_are_bytes() -> None:
    assert encode_one("line", None) == b"line"
    assert encode_one({"b64": "AP8="}, None) == b"\x00\xff"


@pytest.mark.parametrize(
    ("instances", "what"),
    [
        ([], "no instances"),
        ({"age": 1}, "the instances are no list"),
        ([1.5], "instances[0] is no object with features"),
        ([{"age": 1.0}, {"Age": 2.0}], "instances[1] has 'Age'"),
        ([{"age": "three"}], "instances[0].age has a value that is no number"),
        ([{"counts": [1, 2.5]}], "instances[0].counts has a fraction"),
        ([{"city": 5}], "instances[0].city is no text"),
        ([{"city": {"b64": "?"}}], "instances[0].city is no base64"),
    ],
)
def test_what_is_no_record_is_refused(instances: Any, what: str) -> None:
    assert what in refuse(instances)


def test_rows_of_one_request_have_the_same_columns() -> None:
    assert "differ in city" in refuse([{"age": 1}, {"age": 1, "city": "x"}], TABLE)
    assert "neither a number nor a text" in refuse([{"age": [1]}], TABLE)


def test_the_example_can_be_sent_as_it_is() -> None:
    for data in (EXAMPLES, TABLE, None):
        encode_one(example_instance(data), data)
