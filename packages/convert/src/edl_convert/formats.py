"""Words for formats of data, as options take them."""

from __future__ import annotations

from enum import StrEnum

OTHER_IMAGE_SUFFIXES = frozenset((".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2"))
"""Of images that are not converted; a TIFF may have several pages, or pixels of any type."""


class SourceFormat(StrEnum):
    """The formats that can be converted."""

    CSV = "csv"
    PARQUET = "parquet"
    TFRECORD = "tfrecord"
    RECORDIO = "recordio"
    IMAGES = "images"
    IDX = "idx"


class InspectedFormat(StrEnum):
    """The formats that can be inspected: those that jobs read or write."""

    RECORDIO = "recordio"
    TFRECORD = "tfrecord"
    CSV = "csv"
    PARQUET = "parquet"
    JSONL = "jsonl"


class Compression(StrEnum):
    """The compression of the chunks of a RecordIO file."""

    NONE = "none"
    SNAPPY = "snappy"
    GZIP = "gzip"


class ImageForm(StrEnum):
    """How an image's pixels are stored in the feature ``image``."""

    FLOATS = "floats"
    """float32 of 0 to 255, or to 65535 of images of 16 bits; row by row, channels last."""
    BYTES = "bytes"
    """The same as one byte for each value, or two, the low one first."""
    FILE = "file"
    """The file as it is, PNG or JPEG."""
