"""CSV: lines, quotes, headers."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from recordio.formats.csvfile import CsvSource, ends_quoted, join_row, split_row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def read(path: Path, header: bool = True) -> list[bytes]:
    source = recordio.open_source(str(path), csv_header=header)
    found = list(source.read(0, 1 << 40))
    assert source.count() == len(found)
    return found


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a,b\n1,2\n3,4\n", [b"1,2", b"3,4"]),
        (b"a,b\n1,2\n3,4", [b"1,2", b"3,4"]),
        (b"a,b\r\n1,2\r\n3,4\r\n", [b"1,2", b"3,4"]),
        (b"a,b\n\n1,2\n\n\n3,4\n\n", [b"1,2", b"3,4"]),
        (b"\xef\xbb\xbfa,b\n1,2\n", [b"1,2"]),
        (b'a,b\n"x\ny",2\n3,4\n', [b'"x\ny",2', b"3,4"]),
        (b'a,b\n"x\n\n\r\ny",2\n', [b'"x\n\n\r\ny",2']),
        (b'a,b\n"x""\n""y",2\n', [b'"x""\n""y",2']),
        (b'a,b\n5" disk,2\n6" disk,4\n', [b'5" disk,2', b'6" disk,4']),
        (b'a,b\n"",""\n,\n', [b'"",""', b","]),
        (b'"a\nb",c\n1,2\n', [b"1,2"]),
        (b"a,b\n", []),
    ],
)
def test_lines(path: Path, content: bytes, lines: list[bytes]) -> None:
    path.write_bytes(content)
    assert read(path) == lines


def test_the_header_names_the_columns(path: Path) -> None:
    path.write_bytes('\ufeffage, sex,"größe, cm"\n1,2,3\n'.encode())
    source = recordio.open_source(str(path))
    assert source.columns == ("age", "sex", "größe, cm")
    assert list(source.read(0, 9)) == [b"1,2,3"]


def test_records_are_found_by_the_lines_where_they_begin(path: Path) -> None:
    rows = [b"%d,x" % number for number in range(3_000)]
    rows[5] = b'5,"two\nlines"'
    rows[6] = b"\n\n6,after two empty lines"
    path.write_bytes(b"\n".join([b'id,"a\nb"', *rows]) + b"\n")
    source = CsvSource(str(path))
    records = (0, 5, 6, 7, 2_999)
    numbers = [3, 8, 12, 13, 3_005]
    expected = [f"{path}:{number}" for number in numbers]
    assert [source.place(record) for record in records] == expected
    assert [CsvSource(str(path)).place(record, (0, 0)) for record in records] == expected
    block = source.index().block(2_999)
    assert block[0] > 0
    assert CsvSource(str(path)).place(2_999, block) == expected[-1]
    lines = path.read_bytes().split(b"\n")
    assert [lines[number - 1] for number in numbers[2:]] == [rows[6].strip(), rows[7], rows[-1]]


def test_without_a_header_every_line_is_a_record(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    assert read(path, header=False) == [b"1,2", b"3,4"]
    assert recordio.open_source(str(path), csv_header=False).columns is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1,2.5,-3e4\n4,5,6\n", "has only numbers"),
        (b"a,,c\n1,2,3\n", "a name is missing"),
        (b"a,b,a\n1,2,3\n", "'a' twice"),
        (b"\xff,b\n1,2\n", "is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "the text is UTF-16, not UTF-8"),
        (b'a,b\n1,2\n"3,4\n5,6\n', "does not end"),
    ],
)
def test_what_is_no_csv_with_a_header(path: Path, content: bytes, reason: str) -> None:
    path.write_bytes(content)
    with pytest.raises(recordio.DamagedFile, match=reason):
        recordio.open_source(str(path)).index()
    with pytest.raises(recordio.DamagedFile, match=reason):
        list(recordio.open_source(str(path)).read(0, 9, hint=(0, 0)))


@pytest.mark.parametrize(
    "rows",
    [
        "1,2.5,-3e4\n4,5,6\n",
        "0,0,5\n0,1,2\n",
        "0,,5\n0,1,2\n",
        "5.1,3.5,Iris-setosa\n4.9,3,Iris-setosa\n5,3,Iris-virginica\n",
        "5.1,Iris-setosa\n4.9,Iris-virginica\n",
        "cat,-0.3\ndog,1\n",
        "cat,1e-5\n",
        "39, State-gov, Bachelors\n50, Private, HS-grad\n38, Private, Bachelors\n",
    ],
)
def test_a_first_row_is_no_header(path: Path, rows: str) -> None:
    path.write_text(rows)
    with pytest.raises(recordio.NoHeader, match="the first line must name the columns"):
        recordio.open_source(str(path)).index()


def test_some_names_are_numbers(path: Path) -> None:
    path.write_text("city,2019,-1,inf\nBern,1,2,3\nBern,2019,2020,5\n")
    assert recordio.open_source(str(path)).columns == ("city", "2019", "-1", "inf")


def test_lines_and_quotes_longer_than_a_window(path: Path) -> None:
    long = [b"x" * 3_000_000, b'"' + b"y\n" * 1_500_000 + b'"', b"z"]
    path.write_bytes(b"a\n" + b"\n".join(long) + b"\n")
    assert read(path) == long
    source = recordio.open_source(str(path))
    assert list(source.read(2, 3)) == [b"z"]


@pytest.mark.timeout(120)  # joining line by line, it would be hours
def test_a_quote_that_never_ends_is_found_in_bounded_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordio.formats.csvfile._MAX_LINE", 8 << 20)
    path.write_bytes(b'a\n"' + b"x\n" * (16 << 20))
    with pytest.raises(recordio.DamagedFile, match=r"record 0, offset 2: .* does not end"):
        recordio.open_source(str(path)).count()


@given(st.lists(st.lists(st.text(alphabet='ab,"\n ', max_size=6), min_size=2, max_size=3)))
def test_records_are_those_that_the_csv_module_wrote(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    text = io.StringIO()
    csv.writer(text).writerows([["one", "two"], *table])
    path.write_bytes(text.getvalue().encode())
    rows = [next(csv.reader(io.StringIO(line.decode(), newline=""))) for line in read(path)]
    assert rows == table


@given(st.text(alphabet='a,"', max_size=12))
def test_quotes_count_as_for_the_csv_module(line: str) -> None:
    """A line ends within quotes if what follows would belong to its last field."""
    row = next(csv.reader([line + "\n", "#\n"]))
    assert ends_quoted(line.encode(), False) == ("#" in row[-1] if row else False)


@given(st.lists(st.text(alphabet='ab,"\n\r \0ü\udcff', max_size=6), min_size=1, max_size=4))
def test_fields_come_back_from_the_row_that_they_are_joined_to(fields: list[str]) -> None:
    assert split_row(join_row(fields)) == fields


@given(st.lists(st.lists(st.text(alphabet='ab,"\n\r', max_size=6), min_size=1), max_size=4))
def test_joined_rows_are_the_records_of_a_file(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    rows = [join_row(fields) for fields in table]
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    assert read(path, header=False) == rows
