"""A forward-only reader of files, plain or gzip, for formats of lines and records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import IO

from zlib_ng import zlib_ng as zlib

from recordio.errors import DamagedFile
from recordio.storage.files import reading
from recordio.storage.pins import Pin

WINDOW = 1 << 20
"""The number of bytes that are read at once."""

_GZIP = b"\x1f\x8b\x08"


def is_gzip(uri: str, start: bytes) -> bool:
    """Tell whether a file is gzip as a whole, by its name or its first bytes."""
    return uri.lower().endswith(".gz") or start.startswith(_GZIP)


class Stream:
    """Reads the uncompressed content of a file from its beginning to its end.

    Args:
        uri: the file, for messages.
        file: the open file.
        size: its size in bytes.
        gzip: whether it is gzip as a whole.
        end: the end of the wanted range of a plain file: reads that begin before it end there.

    Attributes:
        offset: the offset of the next byte in the plain content.
        checksum: the CRC-32 of the bytes that were read since it was set; None to compute none.
    """

    checksum: int | None = None

    def __init__(self, uri: str, file: IO[bytes], size: int, gzip: bool, end: int = 0) -> None:
        self._uri = uri
        self._file = file
        self._size = size
        self._gzip = gzip
        self._end = end
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""
        self._begun = False
        self.offset = 0

    @property
    def remaining(self) -> int | None:
        """The number of bytes up to the end; None for gzip, where only reading shows it."""
        return None if self._gzip else self._size - self.offset

    def skip_to(self, offset: int) -> None:
        """Skip to an offset, but not beyond the end."""
        if not self._gzip:
            self.offset = self._file.seek(min(offset, self._size))
            return
        while self.offset < offset and self.read(min(WINDOW, offset - self.offset)):
            pass

    def read(self, nbytes: int) -> bytes:
        """Read the next bytes; fewer before the end or damage, none at the end.

        Raises:
            DamagedFile: the gzip stream is wrong from here on.
        """
        content = self._read_gzip(nbytes) if self._gzip else self._read_plain(nbytes)
        if self.checksum is not None:
            self.checksum = int(zlib.crc32(content, self.checksum))
        return content

    def _read_plain(self, nbytes: int) -> bytes:
        if self.offset < self._end:
            nbytes = min(nbytes, self._end - self.offset)
        content = self._file.read(nbytes)
        self.offset += len(content)
        return content

    def _read_gzip(self, nbytes: int) -> bytes:
        parts: list[bytes] = []
        try:
            while nbytes > 0 and (part := self._expand(nbytes)):
                parts.append(part)
                nbytes -= len(part)
        except DamagedFile:
            # The bytes before the damage are good; the next call finds the damage again.
            if not parts:
                raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _expand(self, nbytes: int) -> bytes:
        """Return some of the next bytes of the plain content; none at its end."""
        while True:
            if self._inflate.eof:
                # A gzip file may have several members, and zeros after the last.
                self._input = self._inflate.unused_data.lstrip(b"\0")
                self._begun = False
                self._inflate = zlib.decompressobj(wbits=31)
            if not self._input:
                self._input = self._file.read(WINDOW >> 2)
                if not self._begun:
                    self._input = self._input.lstrip(b"\0") if self.offset else self._input
                if not self._input:
                    if self._begun:
                        raise self._damage("the gzip stream is truncated")
                    return b""
            self._begun = True
            try:
                plain = self._inflate.decompress(self._input, nbytes)
            except zlib.error as error:  # type: ignore[misc]  # typed as Any
                raise self._damage(f"the file cannot be decompressed: {error}") from error
            self._input = self._inflate.unconsumed_tail
            if plain:
                self.offset += len(plain)
                return plain

    def _damage(self, reason: str) -> DamagedFile:
        return DamagedFile(self._uri, None, self.offset, reason)


@contextlib.contextmanager
def streaming(
    uri: str,
    gzip: Callable[[str, bytes], bool] = is_gzip,
    pin: Pin | None = None,
    wanted: tuple[int, int] = (0, 0),
) -> Iterator[Stream]:
    """Open the plain content of a file.

    Args:
        uri: the file.
        gzip: tells from name and first bytes whether the file is compressed.
        pin: the version that the file must have.
        wanted: the range that will be read as a whole if the file is plain; see ``reading``.

    Raises:
        UnreadableFile: it cannot be opened.
    """
    compressed = None if pin is None else pin.gzip
    # The offsets of ``wanted`` are of plain content.
    with reading(uri, pin=pin, wanted=(0, 0) if compressed else wanted) as (file, size):
        if compressed is None:
            start = file.read(64)
            file.seek(0)
            compressed = bool(start) and gzip(uri, start)
            if pin is not None and pin.version:
                pin.gzip = compressed
        yield Stream(uri, file, size, compressed, wanted[1])
