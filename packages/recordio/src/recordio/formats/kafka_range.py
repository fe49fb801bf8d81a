"""A range of a partition behind the reader port: a record is the value of a message."""

from __future__ import annotations

from collections.abc import Iterator

from zlib_ng import zlib_ng as zlib

from recordio.errors import RecordError
from recordio.formats.ranges import RangeReader
from recordio.kafka.addresses import PartitionRange, parse
from recordio.kafka.client import read_messages
from recordio.source import Hint, Index
from recordio.storage.range_cache import RangeCache

KAFKA = "kafka"
"""The name of the format."""

_BLOCK_RECORDS, _BLOCK_BYTES = 1024, 1 << 20
"""A block has at most so many records, and ends after so many bytes."""


class KafkaSource(RangeReader):
    """A range of a partition. The positions of its index are offsets from the range's first one.

    Offsets have gaps, where transactions ended, so only reading tells the number of records.
    """

    format = KAFKA
    columns = None

    def __init__(self, uri: str, version: str = "", cache: RangeCache | None = None) -> None:
        super().__init__(uri, version, cache)
        named = parse(uri)
        if not isinstance(named, PartitionRange):
            raise RecordError(
                f"{uri} is a topic; a range of it is {uri.rstrip('/')}/PARTITION/START-STOP"
            )
        self._range = named

    @property
    def version(self) -> str:
        """A range does not change, as long as it is there."""
        return ""

    def check_unchanged(self) -> None:
        """Do nothing: whether records are still there, reading them tells."""

    def _scan(self) -> Index:
        first_records: list[int] = []
        offsets: list[int] = []
        records = checksum = in_block = nbytes = 0
        for messages in read_messages(self._range, self._range.start):
            for message in messages:
                value = message.value() or b""
                if not in_block or in_block == _BLOCK_RECORDS or nbytes >= _BLOCK_BYTES:
                    first_records.append(records)
                    offsets.append(message.offset() - self._range.start)
                    in_block = nbytes = 0
                checksum = zlib.crc32(value, checksum)
                in_block += 1
                nbytes += len(value)
                records += 1
        length = self._range.stop - self._range.start
        return Index(records, length, tuple(first_records), tuple(offsets), checksum)

    def _blocks(self, start: int, stop: int, hint: Hint, end: int) -> Iterator[list[bytes]]:
        record, offset = hint
        for messages in read_messages(self._range, self._range.start + offset, stop - record):
            values = [message.value() or b"" for message in messages]
            if wanted := values[max(0, start - record) :]:
                yield wanted
            record += len(values)

    def place(self, record: int, hint: Hint | None = None) -> str:
        first, offset = hint if hint is not None else self.index().block(record)
        named = self._range
        for messages in read_messages(named, named.start + offset):
            if record < first + len(messages):
                at = messages[record - first].offset()
                return f"topic {named.topic}, partition {named.partition}, offset {at}"
            first += len(messages)
        return super().place(record, hint)
