"""``edl data convert`` on real files of every format but images."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted_records import TABLE, Call, commands, examples, nothing_is_left, records

import recordio
import recordio.example
from recordio.storage import files
from recordio.storage.pins import PinnedFile


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    return commands(capsys)


# --- CSV -----------------------------------------------------------------------------------


def test_columns_are_numbers_or_texts_by_all_their_cells(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    edl("data", "convert", "t.csv", "--to", "out")
    assert examples("out") == [
        {"age": [30], "income": [1.5], "town": ["Köln, West".encode()], "note": [b""]},
        {"age": [41], "income": [2.0], "town": [b"Rom"], "note": [b"x"]},
        {"income": [3.0], "town": ["Köln".encode()], "note": [b""]},
    ]


def test_identifiers_and_missing_values_stay_texts(edl: Call, tmp_path: Path) -> None:
    cells = {"id": "007,12", "big": f"{2**63},1", "na": "NA,3", "zero": "0,-5", "half": "0.5,1"}
    columns = [cell.split(",") for cell in cells.values()]
    rows = [",".join(cells), *(",".join(column[row] for column in columns) for row in (0, 1))]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    edl("data", "convert", "t.csv", "--to", "out")
    assert examples("out") == [
        {
            "id": [b"007"],
            "big": [b"9223372036854775808"],
            "na": [b"NA"],
            "zero": [0],
            "half": [0.5],
        },
        {"id": [b"12"], "big": [b"1"], "na": [b"3"], "zero": [-5], "half": [1.0]},
    ]


def test_a_label_of_texts_is_numbered(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    done = edl(
        *("data", "convert", "t.csv", "--to", "out", "--columns", "income", "--label", "town"),
        *("-o", "json"),
    )
    classes = {"Köln": 0, "Köln, West": 1, "Rom": 2}
    assert done.json["classes"] == classes
    assert json.loads((tmp_path / "out" / "labels.json").read_text()) == classes
    assert examples("out/*.recordio") == [
        {"income": [1.5], "label": [1]},
        {"income": [2.0], "label": [2]},
        {"income": [3.0], "label": [0]},
    ]


def test_tabs_byte_order_marks_and_other_delimiters(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_bytes("\ufeffa\tb\r\n1\tx\r\n".encode())
    edl("data", "convert", "t.tsv", "--to", "out.recordio")
    assert examples("out.recordio") == [{"a": [1], "b": [b"x"]}]
    (tmp_path / "t.csv").write_text("a;b\n1;2\n")
    edl("data", "convert", "t.csv", "--delimiter", ";", "--to", "out2.recordio")
    assert examples("out2.recordio") == [{"a": [1], "b": [2]}]


def test_several_files_have_one_kind_for_each_column(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n2.5\n")
    edl("data", "convert", "a.csv", "b.csv", "--to", "out")
    assert examples("out") == [{"x": [1.0]}, {"x": [2.5]}]


def test_a_long_table_is_read_in_batches(edl: Call, tmp_path: Path) -> None:
    rows = [f"{number},{number},,r{number % 3}" for number in range(1_500)]
    rows[600] = "600,0.5,7,r0"
    text = "\n".join(["id,x,few,role", *rows]) + "\n"
    (tmp_path / "t.csv").write_text(text)
    edl("data", "convert", "t.csv", "--to", "out", "--label", "role")
    expected = [{"id": [n], "x": [float(n)], "label": [n % 3]} for n in range(1_500)]
    expected[600] |= {"x": [0.5], "few": [7]}
    assert examples("out/*.recordio") == expected
    (tmp_path / "t.csv").write_text(text.replace("600,0.5,7,r0", "600,0.5,7, "))
    done = edl("data", "convert", "t.csv", "--to", "no", "--label", "role", code=3)
    assert "the label is empty\n  where: " in done.err
    assert "t.csv:602" in done.err


def test_arrays_are_not_converted(edl: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", x=np.zeros((2, 3)))
    done = edl("data", "convert", "digits.npz", "--to", "out", code=3)
    assert "recordio.example.encode" in done.err


@pytest.mark.parametrize(
    ("text", "args", "code", "words"),
    [
        ("", (), 3, ["no header"]),
        ("a,b\n", (), 3, ["no record"]),
        ("a,b\n1\n", (), 3, ["t.csv:2", "1 cell,", "header 2"]),
        ("1.5,2\n3,4\n", (), 3, ["t.csv:1", "only numbers", "Write a line with the names"]),
        ("1,1\n3,4\n", (), 3, ["only numbers", "Write a line with the names"]),
        ("5.1,x\n3,y\n", (), 3, ["'5.1', which is a number", "Write a line with the names"]),
        ("1;x\n3;y\n4;x\n", (), 3, ["'x', which is a value of later rows"]),
        ("a,a\n1,2\n", (), 3, ["'a' twice"]),
        ('a\n"open\n', (), 3, ["t.csv", "not a CSV"]),
        ("a,b\n1,2\n", ("--label", "c"), 2, ["'c'", "--label"]),
        ("price,b\n1,2\n", ("--columns", "pric"), 2, ["Did you mean price?"]),
        ("a,label\n1,2\n", ("--label", "a"), 2, ["two features named label"]),
        ("a,b\n1,x\n2,\n", ("--label", "b", "--columns", "a"), 3, ["t.csv:3", "label is empty"]),
        ("a\n1\n", ("--to", "out.csv"), 2, ["--to out.csv", "writes RecordIO", ".recordio"]),
        ("a,b\n1,3\n2,\n", ("--label", "b"), 3, ["t.csv:3", "label is empty"]),
        ("a\n1\n", ("--delimiter", "ab"), 2, ["one character"]),
    ],
)
def test_a_table_that_is_wrong(
    edl: Call, tmp_path: Path, text: str, args: Sequence[str], code: int, words: list[str]
) -> None:
    (tmp_path / "t.csv").write_text(text)
    to = () if "--to" in args else ("--to", "out")
    done = edl("data", "convert", "t.csv", *to, *args, code=code)
    for word in words:
        assert word in done.err
    nothing_is_left(tmp_path, "t.csv", *(["out"] if code == 0 else []))


def test_a_table_that_is_no_text(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    assert "UTF-8" in edl("data", "convert", "t.csv", "--to", "out", code=3).err
    nothing_is_left(tmp_path, "t.csv")
    (tmp_path / "t.csv").write_text("a,b\n1,2\nZürich,3\n", encoding="latin-1")
    err = edl("data", "convert", "t.csv", "--to", "out", code=3).err
    assert "t.csv:3" in err
    assert "the byte 0xfc" in err
    (tmp_path / "t.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    assert "the text is UTF-16" in edl("data", "convert", "t.csv", "--to", "out", code=3).err


def test_a_source_without_a_name_is_not_the_current_folder(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert "the name of a source is empty" in edl("data", "convert", "", "--to", "out", code=2).err
    nothing_is_left(tmp_path, "t.csv")


# --- Parquet -------------------------------------------------------------------------------


def test_parquet_types(edl: Call, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "n": [1, None],
            "f": [1.5, 2.5],
            "ok": [True, False],
            "s": ["ä", "b"],
            "raw": [b"\0", b"\1"],
            "many": [[1, 2], [3]],
            "floats": [[0.5], []],
            "town": ["Rom", "Köln"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    edl("data", "convert", "t.parquet", "--to", "out", "--label", "town")
    assert examples("out/*.recordio") == [
        {
            "n": [1], "f": [1.5], "ok": [1], "s": ["ä".encode()], "raw": [b"\0"],
            "many": [1, 2], "floats": [0.5], "label": [1],
        },
        {
            "f": [2.5], "ok": [0], "s": [b"b"], "raw": [b"\1"],
            "many": [3], "floats": [], "label": [0],
        },
    ]  # fmt: skip


def test_parquet_that_is_wrong(edl: Call, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [{"b": 1}]}), tmp_path / "nested.parquet")
    done = edl("data", "convert", "nested.parquet", "--to", "out", code=3)
    assert "column a" in done.err
    whole = (tmp_path / "nested.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    done = edl("data", "convert", "cut.parquet", "--to", "out", code=3)
    assert "cut.parquet" in done.err
    nothing_is_left(tmp_path, "nested.parquet", "cut.parquet")


# --- files of records, and the output ------------------------------------------------------


def table(tmp_path: Path, rows: int) -> str:
    text = "".join(f"{number}\n" for number in range(rows))
    (tmp_path / "t.csv").write_text("n\n" + text)
    return "t.csv"


def test_records_pass_through_as_they_are(edl: Call, tmp_path: Path) -> None:
    content = [b"one", b"", b"\xff\0three"]
    with recordio.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for record in content:
            writer.write(record)
    edl("data", "convert", "a.tfrecord", "--to", "b.recordio", "--compressor", "gzip")
    assert records("b.recordio") == content
    edl("data", "convert", "b.recordio", "--to", "c", "--compressor", "none")
    assert records("c") == content
    assert (
        "--label" in edl("data", "convert", "b.recordio", "--label", "x", "--to", "d", code=2).err
    )


def test_files_of_a_size_and_a_split(edl: Call, tmp_path: Path) -> None:
    done = edl(
        *("data", "convert", table(tmp_path, 1000), "--to", "out", "--split", "0.8"),
        *("--no-shuffle", "--records-per-file", "300", "-o", "json"),
    )
    train = [one["n"][0] for one in examples("out/train")]
    test = [one["n"][0] for one in examples("out/test")]
    assert sorted(train + test) == list(range(1000))
    assert train == sorted(train)
    assert 700 < len(train) < 900
    assert done.json["parts"] == {"train": len(train), "test": len(test)}
    assert [recordio.open_source(f).count() for f in recordio.expand("out/train")][:2] == [300, 300]
    edl("data", "convert", "t.csv", "--to", "again", "--split", "0.8", "--no-shuffle")
    assert records("again/train") == records("out/train")
    edl("data", "convert", "t.csv", "--to", "other", "--split", "0.8", "--seed", "1")
    assert records("other/train") != records("out/train")


def test_a_split_says_which_part_is_empty(edl: Call, tmp_path: Path) -> None:
    converted = edl("data", "convert", table(tmp_path, 1), "--to", "out", "--split", "0.9").out
    assert "test is empty: --split drew none of the few records for it" in converted
    assert "train is empty" not in converted


def test_an_output_is_never_overwritten(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert "exists" in edl("data", "convert", table(tmp_path, 2), "--to", "out", code=5).err
    assert not list((tmp_path / "out").iterdir())


def test_what_is_half_done_when_it_fails_is_not_there(edl: Call, tmp_path: Path) -> None:
    with recordio.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for number in range(500):
            writer.write(str(number).encode() * 100)
    content = bytearray((tmp_path / "a.tfrecord").read_bytes())
    content[-50] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(content)
    done = edl("data", "convert", "a.tfrecord", "--to", "out", "--records-per-file", "9", code=3)
    assert "a.tfrecord" in done.err
    assert "offset" in done.err
    nothing_is_left(tmp_path, "a.tfrecord")


def test_a_source_without_records_is_named(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "header.csv").write_text("a,b\n")
    recordio.Writer(str(tmp_path / "r.recordio")).close()
    for name in ("header.csv", "r.recordio"):
        done = edl("data", "convert", name, "--to", "out", code=3)
        assert "there are no records to convert\n  where: " in done.err
        assert f"{name}\n" in done.err
        assert "out" not in done.err


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (("none.csv", "--to", "o"), 3, "none.csv does not exist"),
        (("t.csv",), 2, "--to"),
        (("t.csv", "--to", ""), 2, "the name of the output is empty"),
        (("t.csv", "--to", "s3:/b/o"), 2, "--to s3:/b/o: a URI has two slashes"),
        (("s3:/b/t.csv", "--to", "o"), 2, "SRC s3:/b/t.csv: a URI has two slashes"),
        (("t.csv", "--to", "o", "--split", "1.5"), 2, "--split"),
        (("t.csv", "--to", "o.recordio", "--split", "0.5"), 2, "Name a folder"),
        (("t.csv", "what.bin", "--to", "o"), 3, "what.bin"),
        (("t.csv", "r.recordio", "--to", "o"), 2, "several formats: csv, recordio"),
        (("empty", "--to", "o"), 3, "no files"),
        (("t.csv", "--format", "xls", "--to", "o"), 2, "xls"),
    ],
)
def test_a_conversion_that_cannot_be(
    edl: Call, tmp_path: Path, args: Sequence[str], code: int, word: str
) -> None:
    table(tmp_path, 3)
    (tmp_path / "what.bin").write_bytes(b"\1\2\3\4" * 9)
    (tmp_path / "empty").mkdir()
    with recordio.Writer(str(tmp_path / "r.recordio")) as writer:
        writer.write(b"x")
    done = edl("data", "convert", *args, code=code)
    assert word in done.err
    assert "what to do" in done.err
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "s3:").exists()


def test_what_only_looks_like_a_uri_is_not_inspected(edl: Call) -> None:
    done = edl("data", "inspect", "s3:/b/t.csv", code=2)
    assert "FILE s3:/b/t.csv: a URI has two slashes after its scheme" in done.err


class BrokenFile(PinnedFile):
    """A file on a disk that does not give its content."""

    def readinto(self, buffer: Any, /) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_the_disk_does_not_give_is_not_called_the_output(
    edl: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "Error reading bytes from file. Detail: [errno 5] …")

    # The memory of a process is a file whose first bytes cannot be read.
    for name in ("t.csv", "t.jsonl"):
        (tmp_path / name).symlink_to("/proc/self/mem")
    for name in ("t.recordio", "t.parquet"):
        (tmp_path / name).write_bytes(b"content" * 9)
    monkeypatch.setattr(files, "PinnedFile", BrokenFile)
    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", fail)
    for command in (
        ("inspect", "t.jsonl"),
        ("inspect", "t.recordio"),
        ("inspect", "t.parquet"),
        ("convert", "t.csv", "--to", "out"),
        ("convert", "t.recordio", "--to", "out"),
        ("convert", "t.parquet", "--to", "out"),
    ):
        done = edl("data", *command, code=3)
        assert "Input/output error" in done.err, done.err
        assert "The disk cannot read this file" in done.err, done.err
        assert "--to" not in done.err


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_delimiter_is_guessed(edl: Call, tmp_path: Path, sign: str) -> None:
    rows = [("n", "x", "text"), ("1", "2.5", '"a, b; c"'), ("2", "3.5", '"two\nlines"')]
    content = "".join(sign.join(row) + "\n" for row in rows)
    (tmp_path / "t.csv").write_text(content)
    edl("data", "convert", "t.csv", "--to", "out.recordio")
    assert [example["n"] for example in examples("out.recordio")] == [[1], [2]]
    assert examples("out.recordio")[0]["text"] == [b"a, b; c"]


def test_a_table_of_one_column_has_no_delimiter(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n\n1\n2\n")
    edl("data", "convert", "t.csv", "--to", "out.recordio")
    assert examples("out.recordio") == [{"n": [1]}, {"n": [2]}]


def test_what_is_no_regular_file_is_not_pointed_to_a_conversion(edl: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for place in ("pipe", "zeros"):
        told = edl("data", "inspect", place, code=3).err
        assert "the path is not a regular file" in told
        assert "Write the content to a regular file first." in told
        assert "edl data convert" not in told


@pytest.mark.parametrize(
    ("name", "content"),
    [("noise", bytes(range(256)) * 40), ("records.gz", gzip.compress(b"\0\1\2" * 40))],
    ids=["noise", "gzip"],
)
def test_a_format_that_is_unknown_has_to_be_named(
    edl: Call, tmp_path: Path, name: str, content: bytes
) -> None:
    """The conversion refuses it without the name, too."""
    (tmp_path / name).write_bytes(content)
    assert f"edl data convert {name} --format" in edl("data", "inspect", name, code=3).err
    assert "--format" in edl("data", "convert", name, "--to", "out", code=3).err
