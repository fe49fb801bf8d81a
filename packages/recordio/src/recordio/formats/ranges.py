"""The part of reading ranges that all formats share: index, checks of arguments, end of file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain

from recordio.errors import RecordError
from recordio.source import Hint, Index
from recordio.storage.files import reading
from recordio.storage.pins import Pin
from recordio.storage.range_cache import RangeCache
from recordio.storage.stores import is_uri


class RangeReader(ABC):
    """The part of ``Source`` that does not depend on the format."""

    def __init__(self, uri: str, version: str = "", cache: RangeCache | None = None) -> None:
        self.uri = uri
        self._pin = Pin(version, cache.fetch if cache is not None else None, self._checksum_again)
        self._index: Index | None = None

    @abstractmethod
    def _scan(self) -> Index:
        """Scan the file and return its index."""

    @abstractmethod
    def _blocks(self, start: int, stop: int, hint: Hint, end: int) -> Iterator[list[bytes]]:
        """Yield the records of a non-empty range.

        Args:
            start, stop: the range.
            hint: a block at or before the start of the range.
            end: the byte after its last block; 0 if that is unknown.
        """

    def _open_again(self) -> RangeReader:
        """Return this file as another source, which reads whatever is there now."""
        return type(self)(self.uri)

    def _checksum_again(self) -> int:
        return self._open_again().index().checksum

    @property
    def version(self) -> str:
        return self._pin.version

    def count(self) -> int:
        return self.index().records

    def index(self) -> Index:
        if self._index is None:
            self._index = self._scan()
            if not is_uri(self.uri):
                self._pin.complete(self._index.checksum)
        return self._index

    def place(self, record: int, hint: Hint | None = None) -> str:
        return f"{self.uri}, record {record}"

    def check_unchanged(self) -> None:
        with reading(self.uri, pin=self._pin):
            pass

    def read(
        self, start: int, stop: int, *, hint: Hint | None = None, end: int = 0, exact: bool = False
    ) -> Iterator[bytes]:
        return chain.from_iterable(self.read_blocks(start, stop, hint=hint, end=end, exact=exact))

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None, end: int = 0, exact: bool = False
    ) -> Iterator[list[bytes]]:
        if start < 0:
            raise RecordError(f"{self.uri}: a range cannot begin at record {start}")
        if start >= stop:
            return iter(())
        if hint is None:
            hint, end = self.index().block(start), self.index().end(stop)
        if not 0 <= hint[0] <= start or hint[1] < 0:
            raise RecordError(
                f"{self.uri}: the block of record {hint[0]} at byte {hint[1]} is not at or before "
                f"record {start}"
            )
        blocks = self._blocks(start, stop, hint, end)
        return self._check_end(blocks, start, stop) if exact else blocks

    def _check_end(
        self, blocks: Iterator[list[bytes]], start: int, stop: int
    ) -> Iterator[list[bytes]]:
        """Yield the blocks, and raise an error if they end before ``stop``."""
        found = start
        for block in blocks:
            found += len(block)
            yield block
        if found < stop:
            raise RecordError(
                f"{self.uri}: records {start} to {stop - 1} were requested, but the file ends "
                f"after {found}; has the file changed?"
            )
