"""Files of records: RecordIO, and TFRecord and CSV behind the same reader port.

with recordio.Writer("a.recordio") as writer:
    writer.write(b"one record")
for record in recordio.open_source("a.recordio").read(0, 10):
    ...
"""

from recordio.errors import DamagedFile, NoSuchData, RecordError, UnreadableFile
from recordio.formats import open_source
from recordio.patterns import expand
from recordio.source import Hint, Index, Source
from recordio.tfrecord import TFRecordWriter
from recordio.writer import Writer, concatenate

__all__ = [
    "DamagedFile",
    "Hint",
    "Index",
    "NoSuchData",
    "RecordError",
    "Source",
    "TFRecordWriter",
    "UnreadableFile",
    "Writer",
    "concatenate",
    "expand",
    "open_source",
]
