"""Bad records are named by file and line, after a bounded search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

import recordio
import recordio.example
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch, Blocks
from edl_worker.model_file import bad_records
from edl_worker.model_file.bad_records import BadRecordError, Records, explain_bad_records
from edl_worker.model_file.row_order import RowOrder, find_order

SIZE = 32
COLUMNS = ("a", "b")


@dataclass
class Parsing:
    """Parses records in minibatches, and counts them."""

    check: Callable[[list[bytes]], str]
    code: ErrorCode = ErrorCode.SHAPE_MISMATCH
    calls: list[int] = field(default_factory=list)

    def __call__(self, blocks: Blocks) -> Iterator[Batch]:
        records = [record for block in blocks() for record in block]
        self.calls.append(len(records))
        for at in range(0, len(records), SIZE):
            if what := self.check(records[at : at + SIZE]):
                raise EdlError(self.code, what, where="mine.py:3, parse", remedy="Compare.")
            yield Batch(None, None, SIZE)


def has_bad(records: list[bytes]) -> str:
    return "it does not fit" if any(b"bad" in record for record in records) else ""


def differ(records: list[bytes]) -> str:
    return "of different shapes" if len(set(map(len, records))) > 1 else ""


def rows(count: int, **bad: bytes) -> list[bytes]:
    found = [b"%05d,1" % number for number in range(count)]
    for at, row in bad.items():
        found[int(at[1:])] = row
    return found


def run(parsing: Parsing, *parts: Records) -> EdlError:
    def blocks() -> Iterator[list[bytes]]:
        for part in parts:
            yield from part.order.arrange(part.read)

    with pytest.raises(EdlError) as caught:
        for _ in explain_bad_records(parsing, parsing, blocks, lambda: parts):
            pass
    return caught.value


def part(records: list[bytes], start: int = 0, order: RowOrder | None = None) -> Records:
    order = order or RowOrder(COLUMNS)
    return Records(start, lambda: iter([records]), order, lambda n: f"t.csv:{n + 2}")


@pytest.mark.parametrize("at", [0, 1, 31, 32, 499, 999])
def test_a_bad_row_is_found_wherever_it_is(at: int) -> None:
    error = run(Parsing(has_bad), part(rows(1000, **{f"_{at}": b"bad,1"}), start=100))
    assert isinstance(error, BadRecordError)
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert error.what == f"it does not fit; the row 'bad,1' at t.csv:{at + 102}"
    assert error.where == f"t.csv:{at + 102}, read by mine.py:3, parse"
    assert error.remedy.startswith("Correct or remove this row")


def test_the_search_reads_each_record_twice_at_most() -> None:
    parsing = Parsing(has_bad)
    error = run(parsing, part(rows(4096, _4000=b"bad,1")))
    assert "t.csv:4002" in error.where
    searches = parsing.calls[1:]
    assert sum(searches) <= 2 * 4096
    assert len(searches) <= 20


def test_a_search_that_takes_too_long_names_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_records, "_SEARCH_S", -1.0)
    parsing = Parsing(has_bad)
    error = run(parsing, part(rows(300, _40=b"bad,1")))
    assert error.what == "it does not fit"
    assert len(parsing.calls) == 1, "it searches although its time is over"


def test_the_first_of_several_is_named() -> None:
    error = run(Parsing(has_bad), part(rows(300, _40=b"bad,1", _50=b"bad,2")))
    assert "'bad,1' at t.csv:42" in error.what


def test_the_part_of_the_task_counts() -> None:
    parts = part(rows(50)), part(rows(50, _7=b"bad,1"), start=5000)
    assert "t.csv:5009" in run(Parsing(has_bad), *parts).where


@pytest.mark.parametrize("at", [9, 10, 19])
def test_a_record_that_differs_from_the_others_is_found(at: int) -> None:
    error = run(Parsing(differ), part(rows(20, **{f"_{at}": b"longer,row,1"})))
    assert f"such as the row 'longer,row,1' at t.csv:{at + 2}" in error.what
    assert error.remedy == "Compare."


def test_a_function_that_takes_no_record_is_shown_one() -> None:
    error = run(Parsing(lambda records: "no"), part(rows(100)))
    assert error.what == "no; such as the row '00000,1' at t.csv:2"
    assert error.remedy == "Compare."


@pytest.mark.parametrize(
    "check",
    [
        lambda records: "no",  # the function raises whatever it gets
        lambda records: "no" if len(records) == SIZE else "",  # or only for many records
    ],
)
def test_errors_of_no_single_record_stay_as_they_are(check: Callable[[list[bytes]], str]) -> None:
    error = run(Parsing(check, ErrorCode.USER_CODE), part(rows(100)))
    assert (error.what, error.where) == ("no", "mine.py:3, parse")


def test_a_row_of_another_length_in_a_file_of_other_columns() -> None:
    order = find_order(("b", "a"), COLUMNS)
    error = run(Parsing(lambda records: ""), part(rows(100, _60=b"1,2,3"), order=order))
    assert error.what == "a row has 3 fields, the header 2; the row '1,2,3' at t.csv:62"
    assert error.remedy == "Correct the row, or quote fields that contain the separator."


def test_records_that_cannot_be_read_again_are_not_named() -> None:
    def read() -> Iterator[list[bytes]]:
        raise recordio.ChangedFile("t.csv")

    good = part(rows(10, _3=b"bad,1"))
    changed = Records(0, read, RowOrder(COLUMNS), str)
    parsing = Parsing(has_bad)
    with pytest.raises(EdlError) as caught:
        list(explain_bad_records(parsing, parsing, good.read, lambda: [changed]))
    assert caught.value.what == "it does not fit"


def test_a_file_that_changes_during_the_search_is_not_named() -> None:
    def place(record: int) -> str:
        raise recordio.ChangedFile("t.csv")

    bad = rows(10, _3=b"bad,1")
    error = run(Parsing(has_bad), Records(0, lambda: iter([bad]), RowOrder(COLUMNS), place))
    assert error.what == "it does not fit"


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (
            recordio.example.encode({"bad": 1, "x": [0.5, 2.5], "city": "Oslo", "p": b"." * 99}),
            "{bad=1, city='Oslo', p=99 bytes, x=2 values}",
        ),
        (b"bad" * 40, "of 120 bytes, 'badbadbad"),
    ],
)
def test_records_that_are_no_rows_are_shown_too(record: bytes, shown: str) -> None:
    records = [b"good", record, b"good"]
    of = Records(7, lambda: iter([records]), RowOrder(()), lambda n: f"d.recordio, record {n}")
    error = run(Parsing(has_bad), of)
    assert f"the record {shown}" in error.what
    assert error.where.startswith("d.recordio, record 8, read by")
    assert len(error.what) < 160
