"""edl data convert on folders of images and on the files of MNIST."""

from __future__ import annotations

import gzip
import json
import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted_records import Call, commands, examples, nothing_is_left


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    return commands(capsys)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    import PIL.Image as image

    for name, shade in (("cat", 10), ("dog", 200)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            pixels = np.full((2, 3), shade + number, np.uint8)
            image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_folders_are_classes(edl: Call, photos: Path) -> None:
    edl("data", "convert", "photos", "--to", "out", "--no-shuffle")
    found = examples("out/*.recordio")
    assert [one["label"] for one in found] == [[0], [0], [1], [1]]
    assert [one["image"] for one in found] == [[float(s)] * 6 for s in (10, 11, 200, 201)]
    assert json.loads(Path("out/labels.json").read_text()) == {"cat": 0, "dog": 1}


def test_pixels_as_bytes_as_files_and_in_another_size(edl: Call, photos: Path) -> None:
    edl("data", "convert", "photos", "--to", "b.recordio", "--image-as", "bytes", "--no-shuffle")
    assert examples("b.recordio")[3]["image"] == [bytes([201] * 6)]
    assert json.loads(Path("b.labels.json").read_text()) == {"cat": 0, "dog": 1}
    edl("data", "convert", "photos", "--to", "f.recordio", "--image-as", "file", "--no-shuffle")
    assert examples("f.recordio")[0]["image"] == [(photos / "cat" / "0.png").read_bytes()]
    edl("data", "convert", "photos", "--to", "s.recordio", "--size", "4x5", "--no-shuffle")
    assert examples("s.recordio")[0]["image"] == [10.0] * 20


def test_images_of_16_bits_keep_them(edl: Call, photos: Path) -> None:
    import PIL.Image

    done = edl("data", "convert", "photos", "--to", "before")
    for number, file in enumerate(sorted(photos.glob("*/*.png"))):
        if number == 3:
            done = edl("data", "convert", "photos", "--to", "mixed", "--no-shuffle", code=3)
            assert "the pixels have 8 bits, earlier ones 16" in done.err
            assert str(file) in done.err or file.name in done.err
        PIL.Image.fromarray(np.full((2, 3), 256 * 100 + number, np.uint16)).save(file)
    edl("data", "convert", "photos", "--to", "f.recordio", "--no-shuffle")
    assert [one["image"][0] for one in examples("f.recordio")] == [25600.0 + n for n in range(4)]
    edl("data", "convert", "photos", "--to", "b.recordio", "--image-as", "bytes", "--no-shuffle")
    assert examples("b.recordio")[1]["image"] == [np.full(6, 25601, "<u2").tobytes()]
    edl("data", "convert", "photos", "--to", "s.recordio", "--size", "4x5", "--no-shuffle")
    assert examples("s.recordio")[2]["image"] == [25602.0] * 20


def test_images_that_do_not_fit_each_other(edl: Call, photos: Path) -> None:
    import PIL.Image

    PIL.Image.fromarray(np.zeros((5, 5), np.uint8)).save(photos / "dog" / "9.png")
    done = edl("data", "convert", "photos", "--to", "out", code=3)
    assert "9.png" in done.err
    assert "2 sizes: 4 of 2x3, 1 of 5x5" in done.err
    assert "9.png, which is 5x5" in done.err
    assert "--size 2x3" in done.err
    edl("data", "convert", "photos", "--size", "2x3", "--to", "out")
    PIL.Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(photos / "dog" / "9.png")
    done = edl("data", "convert", "photos", "--to", "out2", code=3)
    assert "and color" in done.err


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
        assert "the path is not a regular file" in done.err


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


def test_the_shapes_of_features_are_shown(edl: Call, photos: Path) -> None:
    done = edl("data", "convert", "photos", "--to", "a", "--size", "4x5")
    assert "image  float  4 x 5 x 1" in done.out
    assert "label  int64  1" in done.out
    done = edl("data", "convert", "photos", "--to", "b", "--image-as", "bytes", "-o", "json")
    assert done.json["features"]["image"] == {"type": "bytes", "shape": [2, 3, 1]}


@pytest.mark.parametrize("place", ["photos", "photos/cat", "photos/*/*.png", "photos/cat/0.png"])
def test_images_are_pointed_to_their_conversion(edl: Call, photos: Path, place: str) -> None:
    command = "edl data convert photos --to data"
    assert command in edl("data", "inspect", place, code=3).err
    if "*" not in place and place != "photos":
        assert command in edl("data", "convert", place, "--to", "out", code=3).err
