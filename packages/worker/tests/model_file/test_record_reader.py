"""A model file's own reader of data: its rows reach the input function as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_proto.errors import EdlError
from edl_worker.model_file.adapters.record_reader import ReaderTask, adapt_record_reader
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from recordio.formats.csvfile import split_row


class Reader:
    """A reader that keeps its rows, and the tasks that it gets."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.tasks: list[ReaderTask] = []

    def read_records(self, task: ReaderTask) -> Iterator[Any]:
        self.tasks.append(task)
        yield from self.rows[task.start : task.end]


def read(reader: Reader, *ranges: tuple[int, int]) -> list[bytes]:
    definition = Definition("custom_data_reader", "custom_data_reader", lambda data_origin: reader)
    adapted = adapt_record_reader(definition, DefinitionCaller(Path("/zoo"), {}, None, []))
    return [row for start, stop in ranges for block in adapted("t", start, stop) for row in block]


@given(st.lists(st.lists(st.text(max_size=6), min_size=1, max_size=4)))
def test_fields_of_any_text_come_back(rows: list[list[str]]) -> None:
    found = read(Reader(rows), (0, len(rows)))
    assert [split_row(row) for row in found] == rows


def test_rows_may_have_bytes_and_numbers() -> None:
    rows = [[b"a\nb", 1, 2.5], np.array([b"x", b"y,z"], object), b"as,it,is"]
    assert read(Reader(rows), (0, 3)) == [b'"a\nb",1,2.5', b'x,"y,z"', b"as,it,is"]


def test_a_reader_gets_each_range_by_itself() -> None:
    reader = Reader([b"%d" % number for number in range(600)])
    assert read(reader, (0, 3), (590, 600)) == reader.rows[:3] + reader.rows[590:]
    assert [(task.start, task.end) for task in reader.tasks] == [(0, 3), (590, 600)]


def test_a_reader_that_yields_too_few_records_is_refused() -> None:
    with pytest.raises(EdlError, match="yielded 2 records"):
        read(Reader([b"1", b"2"]), (0, 3))
