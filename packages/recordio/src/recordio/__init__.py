"""Files of records behind one reader port: RecordIO, TFRecord, CSV, Parquet; on disks, in stores.

Code that reads or writes such files, and that needs to know nothing about jobs, belongs here.
Conversion between formats does not: that is in edl-convert.

with recordio.Writer("a.recordio") as writer:
    writer.write(b"one record")
for record in recordio.open_source("a.recordio").read(0, 10):
    ...
"""

from recordio.errors import (
    ChangedFile,
    DamagedFile,
    LostRecords,
    MissingPackage,
    NoHeader,
    NoSuchData,
    RecordError,
    UnknownFormat,
    UnreadableFile,
)
from recordio.formats.detection import open_source
from recordio.formats.tfrecord import TFRecordWriter
from recordio.formats.writer import Writer, concatenate
from recordio.patterns import expand
from recordio.source import Hint, Index, Source

__all__ = [
    "ChangedFile",
    "DamagedFile",
    "Hint",
    "Index",
    "LostRecords",
    "MissingPackage",
    "NoHeader",
    "NoSuchData",
    "RecordError",
    "Source",
    "TFRecordWriter",
    "UnknownFormat",
    "UnreadableFile",
    "Writer",
    "concatenate",
    "expand",
    "open_source",
]
