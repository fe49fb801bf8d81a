"""A cache of ranges of objects, in a folder of this machine, for all of its processes.

It serves ranges that are read again, as in the next epoch of a job. Every range has a file of its
own, named after object, version and offsets. So no process waits for another one, and content that
has changed in the store is never served. Files are written atomically; one that a crash of the
machine has damaged is detected, and its range is read from the store again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from zlib_ng import zlib_ng as zlib

from recordio.storage.stores import StoredObject

_CHECKSUM = 4
_CHECKS = 64
"""A process checks the size of the folder each time it has written this fraction of the limit."""
_KEPT_PART = 0.9
"""The part of the limit that is kept when the folder exceeds it."""
_ABANDONED_S = 3600.0
_TEMPORARY = ".tmp"
_OWN_FOLDER, _OWN_FILE = re.compile(r"[0-9a-f]{2}"), re.compile(r"[0-9a-f]{38}|[0-9a-f]{32}\.tmp")
"""The names that the cache gives to its files; it never removes any other file."""


class RangeCache:
    """Reads ranges from the folder, or else from the store.

    Args:
        folder: the folder, which is created on first use, for this user alone.
        nbytes: the size limit. Each process may exceed it by a 64th until it checks the size again.
    """

    def __init__(self, folder: str, nbytes: int) -> None:
        self._folder = Path(folder)
        self._nbytes = nbytes
        self._unchecked = 0
        self._lock = threading.Lock()

    def fetch(self, stored: StoredObject, start: int, stop: int) -> bytes:
        """Fetch a range as ``stored.fetch`` does; an object without a version is not cached."""
        if not stored.version:
            return stored.fetch(start, stop)
        path = self._path(stored, start, stop)
        content = _read(path, stop - start)
        if content is None:
            content = bytes(stored.fetch(start, stop))
            # A full or read-only disk must only cost speed.
            with contextlib.suppress(OSError):
                if len(content) == stop - start:
                    self._write(path, content)
        return content

    def _path(self, stored: StoredObject, start: int, stop: int) -> Path:
        what = "\n".join((stored.uri, stored.version, f"{start}-{stop}"))
        name = hashlib.blake2b(what.encode(), digest_size=20).hexdigest()
        return self._folder / name[:2] / name[2:]

    def _write(self, path: Path, content: bytes) -> None:
        nbytes = len(content) + _CHECKSUM
        if nbytes > self._nbytes:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        facts = path.parent.lstat()
        if not stat.S_ISDIR(facts.st_mode) or not _is_own(facts):
            return
        temporary = path.with_name(f"{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.write(_checksum(content))
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._make_room(nbytes)

    def _make_room(self, written: int) -> None:
        with self._lock:
            self._unchecked += written
            if self._unchecked * _CHECKS < self._nbytes:
                return
            self._unchecked = 0
        files = list(_files(self._folder))
        total = sum(size for _, size in files)
        if total <= self._nbytes:
            return
        # Eviction is random: jobs read their data in turn, so evicting the least recently used
        # ranges would evict each one just before its next use.
        random.shuffle(files)
        while files and total > self._nbytes * _KEPT_PART:
            path, size = files.pop()
            Path(path).unlink(missing_ok=True)
            total -= size


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield path and size of each range; remove the unfinished files of killed processes."""
    for entry in os.scandir(folder):
        if not _OWN_FOLDER.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        for file in os.scandir(entry):
            if not _OWN_FILE.fullmatch(file.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = file.stat(follow_symlinks=False)
                old = time.time() - found.st_mtime > _ABANDONED_S
                if file.name.endswith(_TEMPORARY) and old:
                    os.unlink(file)
                else:
                    yield file.path, found.st_size


def _read(path: Path, nbytes: int) -> bytes | None:
    try:
        found = _own_content(path)
    except OSError:
        return None
    content = found[:-_CHECKSUM]
    whole = len(content) == nbytes and found[-_CHECKSUM:] == _checksum(content)
    return content if whole else None


def _own_content(path: Path) -> bytes:
    """Read a file that no other user can have written.

    Anyone who may write to the folder of the cache could place files or links there.

    Raises:
        OSError: there is no such file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(path.parent, flags | os.O_DIRECTORY)
    try:
        with open(os.open(path.name, flags | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
            facts = os.fstat(file.fileno())
            is_own = _is_own(facts) and _is_own(os.fstat(folder))
            if not stat.S_ISREG(facts.st_mode) or not is_own:
                raise PermissionError(f"{path} may be another user's")
            return file.read()
    finally:
        os.close(folder)


def _is_own(facts: os.stat_result) -> bool:
    """Tell whether this user owns a file, and not everyone may change it.

    Kubernetes gives the group of a pod the right to write to its volumes.
    """
    return facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_IWOTH


def _checksum(content: bytes) -> bytes:
    return int(zlib.crc32(content)).to_bytes(_CHECKSUM, "little")
