"""Texts that others have written fail in one way, whatever is wrong with them."""

from __future__ import annotations

import pytest
from google.protobuf import json_format

from edl_proto.v1 import job_pb2
from edl_runtime.json_texts import parse_message, parse_object, parse_polled_message

WRONG = [
    *("", "{", "5", "null", "[]", '"x"', "[" * 200_000, '{"a":' * 200_000, "9" * 100_000),
    *(b"\xff\xfe", b"{}\x00", '{"state": "\\ud800"'),
]


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_no_object_is_one_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_object(text)
    with pytest.raises(json_format.ParseError):
        parse_message(text, job_pb2.JobStatus())


@pytest.mark.parametrize(
    "text",
    ['{"state": []}', '{"error": 5}', '{"progress": [[]]}', '{"name": {}}', '{"state": 1e999}'],
)
def test_what_is_no_message_is_one_error(text: str) -> None:
    assert parse_object(text)
    with pytest.raises(json_format.ParseError):
        parse_message(text, job_pb2.JobStatus())


def test_what_is_right_is_taken() -> None:
    assert parse_object(b'{"a": [1]}') == {"a": [1]}
    found = parse_message('{"state": "FAILED", "of_a_later_version": 1}', job_pb2.JobStatus())
    assert found.state == job_pb2.FAILED


def test_a_text_that_is_read_again_gives_the_same_and_another_one_its_own() -> None:
    for name in ("a", "a", "b", "a"):
        found = parse_polled_message(f'{{"name": "{name}"}}'.encode(), job_pb2.JobStatus())
        assert found == job_pb2.JobStatus(name=name)
        found.name = "changed by its caller"
    with pytest.raises(json_format.ParseError):
        parse_polled_message(b"[]", job_pb2.JobStatus())
