"""Pins the version of a file, an object in a store or a local file, for all of its readers.

The version of a local file consists of its size, its times of modification and of change and, once
it is indexed, the checksum of its content. If only the times differ, the content decides: a copy on
another machine, or a file that was copied back, is the same file. ``touch -r`` can set the time of
modification back, but not that of change, which new links and rights change, too. Inode numbers
are not compared, as with some file systems they differ between the machines that share them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from recordio.errors import ChangedFile
from recordio.storage.stores import StoredObject

_MAX_SCANS = 8
"""Of a file whose time of change alone differs each time, as some file systems invent it."""


def version_of(facts: os.stat_result) -> str:
    """Return the version of a local file as far as its times and its size tell it."""
    return f"{facts.st_size}-{facts.st_mtime_ns}.{facts.st_ctime_ns}"


class Pin:
    """Remembers the version of a file, so that all its readers see the same content.

    Args:
        checksum: returns the checksum of a local file's content, for which it scans the file.

    Attributes:
        version: the version; empty until it is known, and if a store has none.
        gzip: whether this version is gzip as a whole; None until that is known.
        fetch_cached: fetches a range of an object through a cache, as ``RangeCache`` does; None if
            every range comes from the store.
    """

    def __init__(
        self,
        version: str = "",
        fetch_cached: Callable[[StoredObject, int, int], bytes] | None = None,
        checksum: Callable[[], int] | None = None,
    ) -> None:
        self.version = version
        self.fetch_cached = fetch_cached
        self.gzip: bool | None = None
        self._checksum = checksum
        self._same: set[str] = set()  # versions without checksum that have the same content
        self._opened: tuple[int, StoredObject] | None = None

    @property
    def opened(self) -> StoredObject | None:
        """The object if it was opened before, and its version need not be checked again."""
        # No client survives a fork.
        if self._opened is None or self._opened[0] != os.getpid():
            return None
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def hold(self, stored: StoredObject) -> None:
        """Remember the version of an object, or check that it is the known one.

        Raises:
            ChangedFile: the object has another version.
        """
        if self.version and stored.version != self.version:
            raise ChangedFile(stored.uri)
        self.version = stored.version
        self._opened = (os.getpid(), stored) if stored.fixed else None

    def hold_local(self, uri: str, facts: os.stat_result) -> None:
        """Remember the version of a local file, or check that it is the known one.

        Raises:
            ChangedFile: the file has another content.
            RecordError: it cannot be scanned.
        """
        found = version_of(facts)
        if not self.version:
            self.version = found
        size, _, rest = self.version.partition("-")
        times, _, checksum = rest.partition("-")
        if found == f"{size}-{times}" or found in self._same:
            return
        is_size = size == str(facts.st_size)
        is_modified = times.partition(".")[0] != str(facts.st_mtime_ns)
        # Without a checksum, a new link to the file is likelier than another content.
        if is_size and not is_modified and (not checksum or len(self._same) >= _MAX_SCANS):
            return
        scan = self._checksum if is_size and checksum else None
        if scan is None or f"{scan():08x}" != checksum:
            raise ChangedFile(uri)
        self._same.add(found)

    def complete(self, checksum: int) -> None:
        """Add the checksum of the content to the version of a local file, if it has none."""
        if self.version.count("-") == 1:
            self.version = f"{self.version}-{checksum:08x}"


class PinnedFile(io.FileIO):
    """A local file of which only bytes of the pinned version are read.

    The version is compared after each read, as a writer changes the time before the content.

    Raises:
        ChangedFile: the file has changed; reading raises it, too.
    """

    def __init__(self, path: str, uri: str, pin: Pin) -> None:
        super().__init__(path)
        self._uri = uri
        self._pin = pin
        self._facts = os.fstat(self.fileno())
        try:
            pin.hold_local(uri, self._facts)
        except BaseException:
            self.close()
            raise

    def readinto(self, buffer: Any, /) -> int:
        while True:
            nbytes = super().readinto(buffer)
            facts, before = os.fstat(self.fileno()), self._facts
            if version_of(facts) == version_of(before):
                return nbytes
            self._pin.hold_local(self._uri, facts)
            self._facts = facts
            self.seek(-nbytes, os.SEEK_CUR)
