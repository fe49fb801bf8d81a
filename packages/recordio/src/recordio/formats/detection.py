"""The formats of files of records: detection by name and content, and opening."""

from __future__ import annotations

from recordio.errors import RecordError, UnknownFormat
from recordio.formats.chunks import MAGIC
from recordio.formats.csvfile import CsvSource, is_json
from recordio.formats.kafka_range import KafkaSource
from recordio.formats.parquet import MAGIC as PARQUET_MAGIC
from recordio.formats.parquet import ParquetSource
from recordio.formats.recordfile import RecordIOSource
from recordio.formats.tfrecord import TFRecordSource, looks_like_tfrecord
from recordio.kafka.addresses import is_kafka
from recordio.source import Source
from recordio.storage.range_cache import RangeCache
from recordio.storage.stream import is_gzip, streaming


def open_source(
    uri: str,
    *,
    format: str | None = None,
    csv_header: bool = True,
    version: str = "",
    cache: RangeCache | None = None,
) -> Source:
    """Open a file of records.

    Args:
        uri: the path or URI.
        format: recordio, tfrecord, csv or parquet; None to detect it by name and content. A range
            of a topic of Kafka has no other one.
        csv_header: whether the first line of a CSV file names its columns.
        version: the version that the file must have; if empty, the source keeps to the version
            that it reads first.
        cache: keeps ranges of stores on this machine.

    Raises:
        UnreadableFile: the file cannot be opened.
        RecordError: the format is unknown.
    """
    if is_kafka(uri):
        return KafkaSource(uri, version, cache)
    match format or sniff(uri):
        case "recordio":
            return RecordIOSource(uri, version, cache)
        case "tfrecord":
            return TFRecordSource(uri, version, cache)
        case "csv":
            return CsvSource(uri, version, cache, header=csv_header)
        case "parquet":
            return ParquetSource(uri, version, cache)
        case other:
            raise RecordError(
                f"{uri}: unknown format {other!r}; use recordio, tfrecord, csv or parquet"
            )


_SNIFF_BYTES = 4096
"""The number of bytes by which the format of a file is detected."""

_BY_NAME = {
    ".recordio": "recordio",
    ".rio": "recordio",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def named_format(uri: str) -> str | None:
    """Return the format that a file's suffix names, if any."""
    name = uri.lower().removesuffix(".gz")
    return next((format for end, format in _BY_NAME.items() if name.endswith(end)), None)


def sniff(uri: str) -> str:
    """Detect the format of a file by its name, or else by its first bytes.

    Raises:
        UnreadableFile: it cannot be opened.
        RecordError: it has no known format, or is a RecordIO file that was compressed as a whole.
    """
    magic = MAGIC.to_bytes(4, "little")
    named = named_format(uri)
    if named is not None and not (named == "recordio" and uri.lower().endswith(".gz")):
        return named
    with streaming(uri, lambda _, start: is_gzip("", start), wanted=(0, _SNIFF_BYTES)) as stream:
        compressed = stream.remaining is None
        start = stream.read(_SNIFF_BYTES)
    if start[:4] == magic and compressed:
        raise RecordError(
            f"{uri} is a gzipped RecordIO file; unpack it (in RecordIO, gzip compresses each "
            "chunk by itself)"
        )
    if not start or start[:4] == magic:
        return "recordio"
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if looks_like_tfrecord(start):
        return "tfrecord"
    if is_json(start):
        raise RecordError(f"{uri}: the file is JSON, which no job reads")
    if _is_text(start) and b"," in start.split(b"\n", 1)[0]:
        return "csv"
    raise UnknownFormat(uri)


def _is_text(start: bytes) -> bool:
    """Tell whether bytes are the beginning of a UTF-8 text."""
    control = set(start) & (set(range(32)) - set(b"\t\n\r\f"))
    try:
        # The last bytes may be a part of a character.
        start[: max(len(start) - 3, 1)].decode()
    except UnicodeDecodeError as error:
        return not control and error.end >= len(start) - 3
    return not control
