"""``edl data convert`` and ``inspect`` on real files of every format."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Done

import recordio
import recordio.example
from edl.__main__ import run
from recordio.storage import files

Call = Callable[..., Done]


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(args), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    return call


def records(place: Path | str) -> list[bytes]:
    return [
        record
        for uri in recordio.expand(str(place))
        for record in recordio.open_source(uri).read(0, recordio.open_source(uri).count())
    ]


def examples(place: Path | str) -> list[dict[str, Any]]:
    return [
        {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in recordio.example.decode(record).items()
        }
        for record in records(place)
    ]


def nothing_is_left(place: Path, *but: str) -> None:
    assert sorted(os.listdir(place)) == sorted(but)


# --- CSV -----------------------------------------------------------------------------------

TABLE = 'age,income,town,note\n30,1.5,"Köln, West",\n41,2,Rom,x\n,3,Köln,\n'


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


@pytest.mark.parametrize(
    ("text", "args", "code", "words"),
    [
        ("", (), 3, ["no header"]),
        ("a,b\n", (), 3, ["no record"]),
        ("a,b\n1\n", (), 3, ["t.csv:2", "1 cell,", "header 2"]),
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
    (tmp_path / "t.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    assert "the text is UTF-16" in edl("data", "convert", "t.csv", "--to", "out", code=3).err


def test_a_source_without_a_name_is_not_the_current_folder(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert "a source has no name" in edl("data", "convert", "", "--to", "out", code=2).err
    nothing_is_left(tmp_path, "t.csv")


# --- Parquet -------------------------------------------------------------------------------


def test_parquet_types(edl: Call, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
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
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [{"b": 1}]}), tmp_path / "nested.parquet")
    done = edl("data", "convert", "nested.parquet", "--to", "out", code=3)
    assert "column a" in done.err
    whole = (tmp_path / "nested.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    done = edl("data", "convert", "cut.parquet", "--to", "out", code=3)
    assert "cut.parquet" in done.err
    nothing_is_left(tmp_path, "nested.parquet", "cut.parquet")


def test_a_reader_that_is_not_installed(
    edl: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    done = edl("data", "convert", "t.parquet", "--to", "out", code=2)
    assert "pip install 'edl-client[convert]'" in done.err
    monkeypatch.setitem(sys.modules, "PIL", None)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "1.png").write_bytes(b"")
    done = edl("data", "convert", "photos", "--to", "out", code=2)
    assert "pillow" in done.err


# --- images --------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for name, shade in (("cat", 10), ("dog", 200)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            pixels = np.full((2, 3), shade + number, np.uint8)
            image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_folders_are_classes(edl: Call, photos: Path) -> None:
    edl("data", "convert", "photos", "--to", "out")
    found = examples("out/*.recordio")
    assert [one["label"] for one in found] == [[0], [0], [1], [1]]
    assert [one["image"] for one in found] == [[float(s)] * 6 for s in (10, 11, 200, 201)]
    assert json.loads(Path("out/labels.json").read_text()) == {"cat": 0, "dog": 1}


def test_pixels_as_bytes_as_files_and_in_another_size(edl: Call, photos: Path) -> None:
    edl("data", "convert", "photos", "--to", "b.recordio", "--image-as", "bytes")
    assert examples("b.recordio")[3]["image"] == [bytes([201] * 6)]
    assert json.loads(Path("b.labels.json").read_text()) == {"cat": 0, "dog": 1}
    edl("data", "convert", "photos", "--to", "f.recordio", "--image-as", "file")
    assert examples("f.recordio")[0]["image"] == [(photos / "cat" / "0.png").read_bytes()]
    edl("data", "convert", "photos", "--to", "s.recordio", "--size", "4x5")
    assert examples("s.recordio")[0]["image"] == [10.0] * 20


def test_images_of_16_bits_keep_them(edl: Call, photos: Path) -> None:
    import PIL.Image

    done = edl("data", "convert", "photos", "--to", "before")
    for number, file in enumerate(sorted(photos.glob("*/*.png"))):
        if number == 3:
            done = edl("data", "convert", "photos", "--to", "mixed", code=3)
            assert "the pixels have 8 bits, earlier ones 16" in done.err
            assert str(file) in done.err or file.name in done.err
        PIL.Image.fromarray(np.full((2, 3), 256 * 100 + number, np.uint16)).save(file)
    edl("data", "convert", "photos", "--to", "f.recordio")
    assert [one["image"][0] for one in examples("f.recordio")] == [25600.0 + n for n in range(4)]
    edl("data", "convert", "photos", "--to", "b.recordio", "--image-as", "bytes")
    assert examples("b.recordio")[1]["image"] == [np.full(6, 25601, "<u2").tobytes()]
    edl("data", "convert", "photos", "--to", "s.recordio", "--size", "4x5")
    assert examples("s.recordio")[2]["image"] == [25602.0] * 20


def test_images_that_do_not_fit_each_other(edl: Call, photos: Path) -> None:
    import PIL.Image

    PIL.Image.fromarray(np.zeros((5, 5), np.uint8)).save(photos / "dog" / "9.png")
    done = edl("data", "convert", "photos", "--to", "out", code=3)
    assert "9.png" in done.err
    assert "--size 2x3" in done.err
    edl("data", "convert", "photos", "--size", "2x3", "--to", "out")
    PIL.Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(photos / "dog" / "9.png")
    done = edl("data", "convert", "photos", "--to", "out2", code=3)
    assert "coloured" in done.err


@pytest.mark.parametrize("args", [("--size", "0x3"), ("--size", "big"), ("--size", "2x3")])
def test_image_options_that_cannot_be(edl: Call, photos: Path, args: Sequence[str]) -> None:
    more = ("--image-as", "file") if args[1] == "2x3" else ()
    assert "--size" in edl("data", "convert", "photos", "--to", "out", *args, *more, code=2).err


@pytest.mark.parametrize("place", ["photos", "photos/dog", "photos/dog/1.tiff"])
@pytest.mark.parametrize("beside", [True, False])
def test_images_of_other_formats_are_refused(
    edl: Call, photos: Path, place: str, beside: bool
) -> None:
    for file in photos.glob("*/*.png"):
        if file.name == "1.png" or not beside:
            file.rename(file.with_suffix(".tiff"))
    done = edl("data", "convert", place, "--to", "out", code=3)
    assert "edl reads .bmp, .gif, .jpeg, .jpg, .png, .webp" in done.err
    assert ".tiff\n" in done.err


def test_images_that_are_none(edl: Call, photos: Path) -> None:
    (photos / "dog" / "1.png").write_bytes(b"no image")
    assert "1.png" in edl("data", "convert", "photos", "--to", "out", code=3).err
    (photos / "loose.png").write_bytes(b"")
    assert "loose.png" in edl("data", "convert", "photos", "--to", "out", code=3).err
    nothing_is_left(photos.parent, "photos")


def test_an_image_that_is_a_pipe_or_announces_gigabytes(edl: Call, photos: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    image = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    (photos / "dog" / "1.png").write_bytes(image)
    assert "pixels" in edl("data", "convert", "photos", "--to", "out", code=3).err
    (photos / "dog" / "1.png").unlink()
    os.mkfifo(photos / "dog" / "1.png")
    for form in ("floats", "file"):
        done = edl("data", "convert", "photos", "--to", "out", "--image-as", form, code=3)
        assert "1.png" in done.err
        assert "it is not a regular file" in done.err


def test_what_pillow_thinks_of_large_images_is_not_shown(
    edl: Call, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import PIL.Image

    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 4)  # it warns of the images, which have 6
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        edl("data", "convert", "photos", "--to", "large")
        assert [str(warning.message) for warning in warned] == []
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 2)
    done = edl("data", "convert", "photos", "--to", "larger", code=3)
    assert "Make it smaller" in done.err


# --- idx -----------------------------------------------------------------------------------


def idx(path: Path, array: np.ndarray[Any, Any], cut: int = 0) -> str:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    content = head + array.astype(np.uint8).tobytes()
    content = content[: len(content) - cut]
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_s_files(edl: Call, tmp_path: Path, suffix: str) -> None:
    pixels = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    images = idx(tmp_path / f"train-images-idx3-ubyte{suffix}", pixels)
    labels = idx(tmp_path / f"train-labels-idx1-ubyte{suffix}", np.array([7, 0, 9]))
    edl("data", "convert", images, labels, "--to", "out.recordio")
    found = examples("out.recordio")
    assert [one["label"] for one in found] == [[7], [0], [9]]
    assert [one["image"] for one in found] == pixels.reshape(3, -1).astype(float).tolist()


def test_mnist_s_files_that_are_wrong(edl: Call, tmp_path: Path) -> None:
    images = idx(tmp_path / "images", np.zeros((3, 2, 2)))
    few = idx(tmp_path / "few", np.zeros(2))
    cut = idx(tmp_path / "cut", np.zeros((3, 2, 2)), cut=1)
    assert "3 images and 2 labels" in edl("data", "convert", images, few, "--to", "o", code=3).err
    assert "11" in edl("data", "convert", cut, "--to", "o", code=3).err
    other = idx(tmp_path / "other", np.zeros((3, 2, 2)))
    assert "not 2 and 0" in edl("data", "convert", images, other, "--to", "o", code=2).err
    assert "not 0 and 1" in edl("data", "convert", few, "--to", "o", code=2).err
    packed = tmp_path / "packed.gz"
    idx(packed, np.zeros((3, 2, 2)))
    packed.write_bytes(packed.read_bytes()[:-9])
    assert (
        "packed.gz"
        in edl("data", "convert", "packed.gz", "--format", "idx", "--to", "o", code=3).err
    )
    nothing_is_left(tmp_path, "images", "few", "cut", "other", "packed.gz")


def test_an_idx_file_that_announces_more_than_numbers_of_64_bits_count(
    edl: Call, tmp_path: Path
) -> None:
    (tmp_path / "images").write_bytes(struct.pack(">HBB4I", 0, 8, 4, *[1 << 16] * 4))
    done = edl("data", "convert", "images", "--to", "o", code=3)
    assert f"{1 << 64} bytes of data, but there are 0" in done.err


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
        *("--records-per-file", "300", "-o", "json"),
    )
    train = [one["n"][0] for one in examples("out/train")]
    test = [one["n"][0] for one in examples("out/test")]
    assert sorted(train + test) == list(range(1000))
    assert train == sorted(train)
    assert 700 < len(train) < 900
    assert done.json["parts"] == {"train": len(train), "test": len(test)}
    assert [recordio.open_source(f).count() for f in recordio.expand("out/train")][:2] == [300, 300]
    edl("data", "convert", "t.csv", "--to", "again", "--split", "0.8")
    assert records("again/train") == records("out/train")
    edl("data", "convert", "t.csv", "--to", "other", "--split", "0.8", "--seed", "1")
    assert records("other/train") != records("out/train")


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
        (("t.csv", "--to", ""), 2, "the output has no name"),
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


class BrokenFile(io.FileIO):
    """A file on a disk that does not give its content."""

    def read(self, nbytes: int | None = -1) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_the_disk_does_not_give_is_not_called_the_output(
    edl: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "Error reading bytes from file. Detail: [errno 5] …")

    # The memory of a process is a file whose first bytes cannot be read.
    for name in ("t.csv", "t.jsonl"):
        (tmp_path / name).symlink_to("/proc/self/mem")
    for name in ("t.recordio", "t.parquet"):
        (tmp_path / name).write_bytes(b"content" * 9)
    monkeypatch.setattr(files, "open", lambda *_: BrokenFile("t.recordio"), raising=False)
    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", broken)
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
        assert "The disk does not give it" in done.err, done.err
        assert "--to" not in done.err


# --- inspect -------------------------------------------------------------------------------


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


# --- what a person is told -----------------------------------------------------------------


def test_the_shapes_of_features_are_shown(edl: Call, photos: Path) -> None:
    done = edl("data", "convert", "photos", "--to", "a", "--size", "4x5")
    assert "image  float  4 x 5 x 1" in done.out
    assert "label  int64  1" in done.out
    done = edl("data", "convert", "photos", "--to", "b", "--image-as", "bytes", "-o", "json")
    assert done.json["features"]["image"] == {"type": "bytes", "shape": [2, 3, 1]}


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


@pytest.mark.parametrize("place", ["photos", "photos/cat", "photos/*/*.png", "photos/cat/0.png"])
def test_images_are_pointed_to_their_conversion(edl: Call, photos: Path, place: str) -> None:
    command = "edl data convert photos --to data"
    assert command in edl("data", "inspect", place, code=3).err
    if "*" not in place and place != "photos":
        assert command in edl("data", "convert", place, "--to", "out", code=3).err


def test_what_is_no_regular_file_is_not_pointed_to_a_conversion(edl: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for place in ("pipe", "zeros"):
        told = edl("data", "inspect", place, code=3).err
        assert "it is not a regular file" in told
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
    """Without its name, the conversion refuses it, too."""
    (tmp_path / name).write_bytes(content)
    assert f"edl data convert {name} --format" in edl("data", "inspect", name, code=3).err
    assert "--format" in edl("data", "convert", name, "--to", "out", code=3).err


def test_inspecting_json_lines(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "p": [0.5, 0.25]}\n\n{"id": "b", "p": []}\n')
    done = edl("data", "inspect", "p.jsonl", "--check")
    assert "jsonl, 2 records" in done.out
    assert "p   float[2]     0.5, 0.25" in done.out
    (tmp_path / "p.jsonl").write_text('{"id": 1}\n{"id":\n')
    assert "p.jsonl:2" in edl("data", "inspect", "p.jsonl", "--check", code=3).err
    assert edl("data", "inspect", "p.jsonl", "-o", "json").json[0]["records"] == 2


def test_inspecting_parquet(edl: Call, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": ["a", "b"], "p": [[0.5], [1.5]]}), tmp_path / "p.parquet")
    done = edl("data", "inspect", "p.parquet", "--check")
    assert "parquet, 2 records" in done.out
    assert "1 row group (1 snappy)" in done.out
    assert "p   double       0.5" in done.out
    assert "all 2 records are whole" in done.out
    (tmp_path / "p.parquet").write_bytes(b"PAR1 cut")
    assert "not a Parquet file" in edl("data", "inspect", "p.parquet", code=3).err
