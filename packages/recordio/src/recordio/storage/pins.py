"""The version of a file that all who read it see: of an object in a store, or of a local file.

The version of a local file is size, time of change and, once it is indexed, the checksum of its
content. If only the time differs, the content decides: a copy on another machine, or a file that
was copied back, is the same file. Numbers of inodes are not compared, as they differ between the
machines that share some file systems.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from recordio.errors import ChangedFile
from recordio.storage.stores import StoredObject


class Pin:
    """Remembers the version of a file, so that all who read it see the same content.

    Args:
        checksum: scans a local file anew for the checksum of its content.

    Attributes:
        version: empty until it is known, and where a store has none.
        gzip: whether this version is gzip as a whole; None until it is known.
        kept: fetches a range of an object, as ``RangeCache`` does; None: the store does, each time.
        found: the object, if no look at the store is needed to know that it is this version.
    """

    def __init__(
        self,
        version: str = "",
        kept: Callable[[StoredObject, int, int], bytes] | None = None,
        checksum: Callable[[], int] | None = None,
    ) -> None:
        self.version = version
        self.kept = kept
        self.gzip: bool | None = None
        self._checksum = checksum
        self._same: set[str] = set()  # versions without checksum that have the same content
        self._found: tuple[int, StoredObject] | None = None

    @property
    def found(self) -> StoredObject | None:
        # No client survives a fork.
        return self._found[1] if self._found is not None and self._found[0] == os.getpid() else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None}

    def hold(self, stored: StoredObject) -> None:
        """Remember this version, if none is known.

        Raises:
            ChangedFile: it is another one.
        """
        if self.version and stored.version != self.version:
            raise ChangedFile(stored.uri)
        self.version = stored.version
        self._found = (os.getpid(), stored) if stored.fixed else None

    def hold_local(self, uri: str, facts: os.stat_result) -> None:
        """Remember the version of a local file, if none is known.

        Raises:
            ChangedFile: the file has another content.
            RecordError: it cannot be scanned.
        """
        found = f"{facts.st_size}-{facts.st_mtime_ns}"
        if not self.version:
            self.version = found
        size, _, rest = self.version.partition("-")
        modified, _, checksum = rest.partition("-")
        if found == f"{size}-{modified}" or found in self._same:
            return
        scan = self._checksum if size == str(facts.st_size) and checksum else None
        if scan is None or f"{scan():08x}" != checksum:
            raise ChangedFile(uri)
        self._same.add(found)

    def complete(self, checksum: int) -> None:
        """Add the checksum of its content to the version of a local file, if it lacks it."""
        if self.version.count("-") == 1:
            self.version = f"{self.version}-{checksum:08x}"


class PinnedFile(io.FileIO):
    """A local file whose every read returns bytes of the pinned version.

    The version is compared after each read: a writer changes the time before the content.

    Raises:
        ChangedFile: from a read or the opening.
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
            if (facts.st_size, facts.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
                return nbytes
            self._pin.hold_local(self._uri, facts)
            self._facts = facts
            self.seek(-nbytes, os.SEEK_CUR)
