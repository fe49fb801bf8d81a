"""Files by path or URI, which are read at any offset and written atomically."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import stat
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import IO, Any

from recordio.errors import UnreadableFile
from recordio.storage.pins import Pin, PinnedFile
from recordio.storage.stored_file import StoredFile, retry_transient
from recordio.storage.stores import filesystem, is_uri, open_object

AHEAD = 1 << 20
"""The size of the first request to a store: the fixed cost of a request equals about so many
bytes."""


def local_path(location: str) -> str:
    """Return the path of a plain path or ``file://`` URI."""
    return location.removeprefix("file://")


def is_regular(path: str) -> bool:
    """Tell whether a file is regular: reading it ends, and waits for no other process.

    Some files of the kernel, such as ``/proc/kmsg``, have the type and size of empty regular
    files, but reading them may take forever.

    Raises:
        OSError: the file does not exist, or cannot be opened.
    """
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode) or about.st_size:
        return stat.S_ISREG(about.st_mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # It may also have grown since.
        return not os.read(descriptor, 1) or os.fstat(descriptor).st_size > 0
    except OSError as error:
        return not isinstance(error, BlockingIOError)  # its reader gets any other error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def reading(
    uri: str,
    *,
    ahead: int = AHEAD,
    pin: Pin | None = None,
    wanted: tuple[int, int] = (0, 0),
) -> Iterator[tuple[IO[bytes], int]]:
    """Open a file for reading at offsets: ``(file, size in bytes)``.

    Args:
        uri: the path or URI of the file.
        ahead: the size of the first request in bytes, if the file is in a store.
        pin: the version that the file must have.
        wanted: the range that will be read as a whole: its first byte, and the byte after it.

    Raises:
        UnreadableFile: it cannot be opened, is a directory, a pipe or a device, or has changed;
            also from within the context, if it cannot be read.
    """
    try:
        if is_uri(uri):
            stored = pin.opened if pin is not None else None
            if stored is None:
                stored = retry_transient(lambda: open_object(uri), uri)
            if pin is not None:
                pin.hold(stored)
                if pin.fetch_cached is not None:
                    stored = replace(stored, fetch=partial(pin.fetch_cached, stored))
            size = stored.size
            file: Any = StoredFile(stored, ahead, wanted)
        else:
            # Opening a pipe without a writer would wait forever.
            path = local_path(uri)
            if not os.path.isdir(path) and not is_regular(path):
                raise UnreadableFile(f"{uri}: the path is not a regular file")
            raw = io.FileIO(path) if pin is None else PinnedFile(path, uri, pin)
            file, size = io.BufferedReader(raw), os.fstat(raw.fileno()).st_size
    except OSError as error:
        raise _unreadable(uri, error) from error
    with file:
        try:
            yield file, size
        except OSError as error:
            raise _unreadable(uri, error) from error


def _unreadable(uri: str, error: OSError) -> UnreadableFile:
    return UnreadableFile(f"{uri}: {error.strerror or error}")


class AtomicFile:
    """A file that appears under its name when it is complete, and not before.

    It is written under a hidden temporary name in the same directory, unique to this writer;
    ``commit`` flushes it to the disk and renames it, ``discard`` removes it.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._system: Any = None
        self._open = True
        path = local_path(uri)
        if is_uri(uri):
            self._system, path = filesystem(uri)
        self._path = path
        head, tail = os.path.split(path)
        self._temporary = os.path.join(head, f".{tail}.{uuid.uuid4().hex[:12]}.tmp")
        if self._system is None:
            self.file: IO[bytes] = open(self._temporary, "xb")  # noqa: SIM115  (commit, discard)
        else:
            self.file = self._system.open(self._temporary, "wb")

    def commit(self) -> None:
        """Publish the file under its name; if that fails, discard it."""
        try:
            self.file.flush()
            if self._system is None:
                os.fsync(self.file.fileno())
            self.file.close()
            if self._system is None:
                os.replace(self._temporary, self._path)
                _sync_directory(os.path.dirname(self._path) or ".")
            else:
                _rename_object(self._system, self._temporary, self._path)
        except BaseException:
            self.discard()
            raise
        self._open = False

    def discard(self) -> None:
        """Remove what was written. It raises no error, as that would hide the one before it."""
        self._open = False
        if self._system is not None:
            self._discard_upload()
            return
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)

    def _discard_upload(self) -> None:
        file: Any = self.file
        # A store's client has error types of its own.
        with contextlib.suppress(Exception):
            file.discard()  # ends the upload
        with contextlib.suppress(Exception):
            file.closed = True  # closing it, as when it is freed, would complete the upload
        with contextlib.suppress(Exception):
            self._system.rm_file(self._temporary)

    def __del__(self) -> None:
        if getattr(self, "_open", False) and hasattr(self, "file"):
            warnings.warn(
                f"{self._uri}: a writer was never closed, so its file was discarded",
                ResourceWarning,
                stacklevel=1,
            )
            self.discard()


def _rename_object(system: Any, source: str, target: str) -> None:
    if not glob.has_magic(source):
        system.mv(source, target)
        return
    # ``mv`` would take the name for a pattern.
    system.cp_file(source, target)
    system.rm_file(source)


def _sync_directory(path: str) -> None:
    """Make a rename survive a power failure, if the file system supports that."""
    with contextlib.suppress(OSError):
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
