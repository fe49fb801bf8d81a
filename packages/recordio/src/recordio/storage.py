"""Files by path or URI: read at an offset, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import IO, Any

from recordio.errors import UnreadableFile


def is_uri(place: str) -> bool:
    """Whether a place needs fsspec; plain paths and ``file://`` do not."""
    return "://" in place and not place.startswith("file://")


def local_path(place: str) -> str:
    """The path of a plain path or ``file://`` URI."""
    return place.removeprefix("file://")


def filesystem(uri: str) -> tuple[Any, str]:
    """The fsspec file system of a URI, and the path within it."""
    import fsspec

    system, path = fsspec.core.url_to_fs(uri)
    return system, path


@contextlib.contextmanager
def reading(uri: str) -> Iterator[tuple[IO[bytes], int]]:
    """Open a file for reading at offsets: ``(file, size in bytes)``.

    Raises:
        UnreadableFile: it cannot be opened.
    """
    try:
        if is_uri(uri):
            system, path = filesystem(uri)
            size = int(system.size(path))
            file: IO[bytes] = system.open(path, "rb")
        else:
            file = open(local_path(uri), "rb")  # noqa: SIM115 (closed below, with the generator)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableFile(f"{uri}: {reason}") from error
    with file:
        yield file, size


class AtomicFile:
    """A file that appears under its name when it is complete, and not before.

    It is written under a hidden temporary name in the same directory; ``commit`` flushes it to
    the disk and renames it, ``discard`` removes it.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._system: Any = None
        path = local_path(uri)
        if is_uri(uri):
            self._system, path = filesystem(uri)
        self._path = path
        head, tail = os.path.split(path)
        self._temporary = os.path.join(head, f".{tail}.{uuid.uuid4().hex[:12]}.tmp")
        if self._system is None:
            self.file: IO[bytes] = open(self._temporary, "xb")  # noqa: SIM115 (commit, discard)
        else:
            self.file = self._system.open(self._temporary, "wb")

    def commit(self) -> None:
        try:
            self.file.flush()
            if self._system is None:
                os.fsync(self.file.fileno())
            self.file.close()
            if self._system is None:
                os.replace(self._temporary, self._path)
            else:
                self._system.mv(self._temporary, self._path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            if self._system is None:
                os.unlink(self._temporary)
            else:
                self._system.rm(self._temporary)
