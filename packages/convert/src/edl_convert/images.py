"""Folders of images (the folder is the class) and MNIST's idx files."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import random
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import recordio.example
from edl.plugins.data import IMAGE_SUFFIXES
from edl.plugins.errors import usage
from edl_convert.column_types import number_classes
from edl_convert.formats import OTHER_IMAGE_SUFFIXES, ImageForm
from edl_convert.schema import ColumnType
from edl_convert.source import ConversionOptions
from edl_convert.tables import cannot_open, unreadable
from edl_proto.errors import EdlError, ErrorCode

OTHER_IMAGES = f"Save the images as PNG. edl reads {', '.join(sorted(IMAGE_SUFFIXES))}."
"""What to do with images of other formats."""

_SAMPLE, _SHOWN = 2000, 3
"""Images that are looked at for an error about their sizes, and sizes that it shows."""
_UBYTE = 8  # idx's code for unsigned bytes, the only one that MNIST's files have


class ImageFolderSource:
    """Images in folders; the name of an image's folder is its class.

    All images must have one size and one number of channels, or be brought to it by
    ``size``; grayscale ones have one channel, all others three.
    """

    def __init__(self, folder: Path, options: ConversionOptions) -> None:
        self.name = str(folder)
        self._form = options.image_form
        self._size = options.size
        files = sorted(Path(place) / name for place, _, names in os.walk(folder) for name in names)
        for file in files:
            if file.suffix.lower() in OTHER_IMAGE_SUFFIXES:
                raise unreadable("this image format is not supported", str(file), OTHER_IMAGES)
        self._files = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
        if not self._files:
            raise EdlError(
                ErrorCode.DATA_EMPTY,
                "the folder contains no images",
                where=str(folder),
                remedy="Make a folder for each class, with files "
                f"{', '.join(sorted(IMAGE_SUFFIXES))}.",
            )
        loose = [file for file in self._files if file.parent == folder]
        if loose:
            remedy = "Put every image into a folder named after its class."
            if len(loose) == len(self._files):  # this folder may be a class itself
                remedy += f" If {folder.name} is one: edl data convert {folder.parent} --to data"
            raise unreadable("an image is not in the folder of a class", str(loose[0]), remedy)
        self.total: int | None = len(self._files)
        self.classes: Mapping[str, int] = number_classes(
            (file.parent.name for file in self._files), options.numbers
        )
        self.image_shape: tuple[int, ...] | None = None
        self.types: Mapping[str, ColumnType] = {}
        if self._form is not ImageForm.FILE:
            import PIL.Image

            self._open: Any = PIL.Image.open
        elif self._size:
            raise usage(
                "--size has no effect with --image-as file",
                where="--size",
                remedy="Leave one of them out.",
            )

    def shuffle(self, seed: int) -> None:
        random.Random(seed).shuffle(self._files)

    def records(self) -> Iterator[bytes]:
        first: tuple[int, ...] | None = None
        depth: np.dtype[Any] | None = None
        for file in self._files:
            if file.exists() and not file.is_file():  # to read a pipe may take forever
                raise unreadable("the path is not a regular file", str(file), "Remove it.")
            label = np.array([self.classes[file.parent.name]], np.int64)
            if self._form is ImageForm.FILE:
                yield recordio.example.encode({"image": [_content(file)], "label": label})
                continue
            pixels = self._pixels(file)
            first = first or pixels.shape
            self.image_shape = first
            depth = depth or pixels.dtype
            if pixels.dtype != depth:
                raise unreadable(
                    f"the pixels have {8 * pixels.itemsize} bits, "
                    f"earlier ones {8 * depth.itemsize}",
                    str(file),
                    "Convert all images to the same number of bits.",
                )
            if pixels.shape[2:] != first[2:]:
                raise unreadable(
                    f"the image is {_shape(pixels.shape)}, earlier images are {_shape(first)}",
                    str(file),
                    "Convert all images to grayscale or all to color.",
                )
            if pixels.shape != first:
                raise self._sizes_error()
            yield recordio.example.encode({"image": pack(pixels, self._form), "label": label})

    def _sizes_error(self) -> EdlError:
        """Return the error for images of several sizes, with the size that most of them have."""
        files: dict[tuple[int, int], list[Path]] = {}
        for file in self._files[:_SAMPLE]:
            # An image that cannot be read has an error of its own, when its turn comes.
            with contextlib.suppress(Exception), self._open(file) as image:
                files.setdefault((image.height, image.width), []).append(file)
        sizes = sorted(files, key=lambda size: -len(files[size]))
        (height, width), rare = sizes[0], sizes[-1]
        shown = ", ".join(f"{len(files[h, w]):,} of {h}x{w}" for h, w in sizes[:_SHOWN])
        more = f" and {len(sizes) - _SHOWN} more" if len(sizes) > _SHOWN else ""
        return unreadable(
            f"the images have {len(sizes)} sizes: {shown}{more}",
            f"{files[rare][0]}, which is {rare[0]}x{rare[1]}",
            f"Resize all images: --size {height}x{width}",
        )

    def _pixels(self, file: Path) -> np.ndarray[Any, Any]:
        """Return an array (height, width, channels) of uint8; of uint16 for 16-bit grayscale."""
        try:
            with warnings.catch_warnings(action="ignore"), self._open(file) as image:
                deep = image.mode == "I" or image.mode.startswith("I;16")
                grayscale = deep or image.mode in ("1", "L", "F", "LA")
                picture = image.convert("I" if deep else "L" if grayscale else "RGB")
                if self._size:
                    picture = picture.resize((self._size[1], self._size[0]))
                pixels = np.asarray(picture)
                if deep:
                    pixels = np.clip(pixels, 0, 0xFFFF).astype("<u2")
        except MemoryError:
            raise
        except Exception as error:  # each of Pillow's decoders raises errors of its own
            if isinstance(error, OSError) and error.errno:
                raise cannot_open(error, file) from error
            is_large = type(error).__name__ == "DecompressionBombError"
            raise unreadable(
                f"not an image: {error}",
                str(file),
                "Make it smaller." if is_large else "Repair or remove the file.",
            ) from error
        return pixels.reshape(*pixels.shape[:2], -1)


class IdxSource:
    """MNIST's files: one with images (or any arrays of bytes), one with their labels."""

    def __init__(self, files: Sequence[Path], options: ConversionOptions) -> None:
        self._form = options.image_form
        if self._form is ImageForm.FILE or options.size:
            raise usage(
                "idx files contain pixels; --image-as file and --size do not apply to them",
                where="--image-as" if self._form is ImageForm.FILE else "--size",
                remedy="Leave it out.",
            )
        self.name = ", ".join(map(str, files))
        arrays = {file: _read_idx(file) for file in files}
        images = [file for file, array in arrays.items() if array.ndim > 1]
        labels = [file for file, array in arrays.items() if array.ndim == 1]
        if len(images) != 1 or len(labels) > 1:
            raise usage(
                f"one idx file of images and one of labels make a data set, not {len(images)}"
                f" and {len(labels)}",
                where=", ".join(map(str, files)),
                remedy="edl data convert train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz"
                " --to train",
            )
        self._images = arrays[images[0]]
        self._labels = arrays[labels[0]] if labels else None
        if self._labels is not None and len(self._labels) != len(self._images):
            raise unreadable(
                f"there are {len(self._images)} images and {len(self._labels)} labels",
                f"{images[0]}, {labels[0]}",
                "Check that both files belong to one data set.",
            )
        self.total: int | None = len(self._images)
        self.classes: Mapping[str, int] = {}
        self.image_shape: tuple[int, ...] | None = self._images.shape[1:]
        self.types: Mapping[str, ColumnType] = {}

    def records(self) -> Iterator[bytes]:
        for number, pixels in enumerate(self._images):
            features: dict[str, Any] = {"image": pack(pixels, self._form)}
            if self._labels is not None:
                features["label"] = np.array([self._labels[number]], np.int64)
            yield recordio.example.encode(features)


def pack(pixels: np.ndarray[Any, Any], form: ImageForm) -> Any:
    """Return pixels as a feature."""
    if form is ImageForm.BYTES:
        return [pixels.tobytes()]
    return pixels.astype(np.float32).reshape(-1)


def is_idx(file: Path) -> bool:
    """Return whether a file begins as idx files of bytes do, compressed or not."""
    try:
        with _open(file) as stream:
            start = stream.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return len(start) == 4 and start[:2] == b"\0\0" and start[2] == _UBYTE and 1 <= start[3] <= 4


def _read_idx(file: Path) -> np.ndarray[Any, Any]:
    try:
        with _open(file) as stream:
            content = stream.read()
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno:
            raise cannot_open(error, file) from error
        raise unreadable(
            f"the file cannot be read: {error}", str(file), "Download the complete file again."
        ) from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UBYTE:
        raise unreadable("not an idx file of bytes", str(file), "MNIST's files begin with 0, 0, 8.")
    axes = content[3]
    shape = np.frombuffer(content[4 : 4 + 4 * axes], ">u4").tolist()
    size = math.prod(shape) if len(shape) == axes else -1
    start = 4 + 4 * axes
    if axes < 1 or len(content) - start != size:
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            f"the header announces {size} bytes of data, but there are {len(content) - start}",
            where=f"{file}, offset {start}",
            remedy="Download the complete file again.",
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _open(file: Path) -> Any:
    with file.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(file) if packed else file.open("rb")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise cannot_open(error, file) from error


def _shape(shape: tuple[int, ...]) -> str:
    kind = "grayscale" if shape[2] == 1 else "color"
    return f"{shape[0]}x{shape[1]} and {kind}"
