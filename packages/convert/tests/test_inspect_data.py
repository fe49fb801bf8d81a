"""edl data inspect on files of every format."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted_records import TABLE, Call, commands

import recordio
import recordio.example


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    return commands(capsys)


def test_a_file_of_examples_is_shown(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    edl("data", "convert", "t.csv", "--to", "out.recordio", "--compressor", "gzip")
    (report,) = edl("data", "inspect", "out.recordio", "--check", "-o", "json").json
    assert report["format"] == "recordio"
    assert report["records"] == report["checked_records"] == 3
    assert report["compressors"] == {"gzip": 1}
    assert report["bytes"] == (tmp_path / "out.recordio").stat().st_size
    assert report["first_record"]["age"] == {"type": "int64", "values": 1, "first": [30]}
    assert report["first_record"]["town"]["first"] == "Köln, West"
    text = edl("data", "inspect", "out.recordio").out
    assert "3 records" in text
    assert "age" in text


def test_other_records_are_shown_as_what_they_are(edl: Call, tmp_path: Path) -> None:
    with recordio.Writer(str(tmp_path / "a.recordio")) as writer:
        writer.write(b"\xff\0\1")
    with recordio.TFRecordWriter(str(tmp_path / "b.tfrecord")) as writer:
        writer.write(b"just text")
    (tmp_path / "c.csv").write_text("x,y\n1,2\n")
    with recordio.Writer(str(tmp_path / "d.recordio")):
        pass
    found = edl(
        *("data", "inspect", "a.recordio", "b.tfrecord", "c.csv", "d.recordio", "-o", "json")
    ).json
    assert [one["first_record"] for one in found] == ["ff 00 01", "just text", "1,2", None]
    assert [one["format"] for one in found] == ["recordio", "tfrecord", "csv", "recordio"]
    assert "x, y" in found[2]["first_record_is"]
    assert "just text" in edl("data", "inspect", "*.tfrecord").out


def test_the_names_of_a_file_and_of_its_columns_add_no_lines(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "e\n03:14:06 JobSucceeded: forged.csv").write_text('x,"y\nerror: forged"\n1,2\n')
    shown = edl("data", "inspect", "e*.csv").out
    assert "e\\n03:14:06 JobSucceeded: forged.csv" in shown
    assert "y\\nerror: forged" in shown
    assert not [line for line in shown.splitlines() if line.startswith(("03:14", "error"))]


def test_bad_rows_are_named_by_their_lines(edl: Call, tmp_path: Path) -> None:
    rows = [f"{number},0.5,Nan" for number in range(2_000)]
    rows[7] = '7,0.5,"In\nf"'  # two lines
    rows[10] = "10,nan,x"
    rows[11] = "11, -INF ,x"
    rows[1_500] = "1500,0.5"
    rows[1_700] = '1700,0.5,"a, b"'
    for number in range(1_800, 1_810):
        rows[number] = f"{number},1,2,3"
    rows[1_900] = '1900,0.5,"a, b",x'
    (tmp_path / "t.csv").write_text("\n".join(["id,x,name", *rows]) + "\n")
    edl("data", "inspect", "t.csv")
    done = edl("data", "inspect", "t.csv", "--check", code=3)
    assert "12 rows with another number of fields than the 3 columns" in done.err
    assert "t.csv:1503 (2 fields), t.csv:1803 (4 fields)" in done.err
    assert "and 7 more" in done.err
    assert "2 values not finite: t.csv:13 (x=nan), t.csv:14 (x=-INF)" in done.err
    assert "where: t.csv:13" in done.err
    (tmp_path / "t.csv").write_text("id,x,name\n1,0.5,Nan\n2,0.5,Bob\n")
    assert "all 2 records are whole" in edl("data", "inspect", "t.csv", "--check").out


def test_a_text_among_numbers_makes_no_column_of_texts(edl: Call, tmp_path: Path) -> None:
    rows = ["0.3,nan", "0.3,inf", "0.3,abc", *(250 * ["0.3,0.5"])]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    done = edl("data", "inspect", "t.csv", "--check", code=3)
    assert "2 values not finite: t.csv:2 (b=nan), t.csv:3 (b=inf)" in done.err
    assert "1 text among numbers: t.csv:4 (b=abc)" in done.err


def test_values_of_examples_that_are_not_finite_are_named(edl: Call, tmp_path: Path) -> None:
    with recordio.Writer("t.recordio") as writer:
        for number in range(50):
            value = float("nan") if number in (3, 40) else 1.0
            writer.write(recordio.example.encode({"x": [1.0, value], "n": number}))
    done = edl("data", "inspect", "t.recordio", "--check", code=3)
    assert "2 values not finite: t.recordio, record 3 (x=nan), t.recordio, record 40" in done.err


def test_damage_is_found_by_check(edl: Call, tmp_path: Path) -> None:
    with recordio.Writer(str(tmp_path / "a.recordio"), chunk_records=10) as writer:
        for number in range(30):
            writer.write(str(number).encode() * 50)
    content = bytearray((tmp_path / "a.recordio").read_bytes())
    content[-3] ^= 1
    (tmp_path / "a.recordio").write_bytes(content)
    edl("data", "inspect", "a.recordio")
    done = edl("data", "inspect", "a.recordio", "--check", code=3)
    for word in ("damaged", "CRC", "chunk 2", "offset", "a.recordio"):
        assert word in done.err
    (tmp_path / "a.recordio").write_bytes(content[:-10])
    assert "damaged" in edl("data", "inspect", "a.recordio", code=3).err
    assert "nothing matches" in edl("data", "inspect", "b*", code=3).err


@pytest.mark.parametrize(("header", "reason"), [("a,a", "'a' twice"), ("a,", "a name is missing")])
def test_a_header_to_correct(edl: Call, tmp_path: Path, header: str, reason: str) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n1,2\n")
    err = edl("data", "inspect", "t.csv", code=3).err
    assert reason in err
    assert "Give each column a name" in err
    assert ("to_csv(FILE, index=False)" in err) == ("missing" in reason)
    assert "damaged" not in err
    assert "before this offset" not in err


def test_inspecting_json_lines(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "p": [0.5, 0.25]}\n\n{"id": "b", "p": []}\n')
    done = edl("data", "inspect", "p.jsonl", "--check")
    assert "jsonl, 2 records" in done.out
    assert "p   float[2]     0.5, 0.25" in done.out
    (tmp_path / "p.jsonl").write_text('{"id": 1}\n{"id":\n')
    assert "p.jsonl:2" in edl("data", "inspect", "p.jsonl", "--check", code=3).err
    assert edl("data", "inspect", "p.jsonl", "-o", "json").json[0]["records"] == 2


def test_inspecting_parquet(edl: Call, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": ["a", "b"], "p": [[0.5], [1.5]]}), tmp_path / "p.parquet")
    done = edl("data", "inspect", "p.parquet", "--check")
    assert "parquet, 2 records" in done.out
    assert "1 row group (1 snappy)" in done.out
    assert "p   double       0.5" in done.out
    assert "all 2 records are whole" in done.out
    (tmp_path / "p.parquet").write_bytes(b"PAR1 cut")
    assert "not a Parquet file" in edl("data", "inspect", "p.parquet", code=3).err
