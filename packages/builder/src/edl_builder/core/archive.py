"""The rules for the entries of an archive; each is checked before its content is read."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from enum import StrEnum

from edl_builder.core.failure import BuilderError, Reason
from edl_proto.limits import MAX_ZOO_FILES, MAX_ZOO_NBYTES

ARCHIVE_NBYTES = 256 << 20
"""A zoo is code and small files; data and weights come by URI."""

_MAX_PATH_BYTES = 1024
_MAX_NAME_BYTES = 255
_DEEPEST = 64


class EntryKind(StrEnum):
    """The kind of an archive's entry."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    HARDLINK = "hard link"
    OTHER = "device, pipe or other special file"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as the archive states it; nothing in it is trusted."""

    path: str
    kind: EntryKind
    nbytes: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The limits of a zoo's size."""

    archive_nbytes: int = ARCHIVE_NBYTES
    unpacked_nbytes: int = MAX_ZOO_NBYTES
    files: int = MAX_ZOO_FILES


class EntryValidator:
    """Checks the entries of one archive, in their order.

    Accepted are files, folders, and symbolic links that stay in the tree whatever other links
    the tree holds: a target is relative, has ``..`` only at its beginning, and climbs no
    further than the root; no entry lies below a link or a file; no name is given twice.
    """

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._leaves: set[str] = set()
        self._folders: set[str] = {""}
        self._nbytes = 0
        self._entries = 0

    def accept(self, entry: Entry) -> str:
        """Return the path of an entry within the zoo; empty for the root itself.

        Raises:
            BuilderError: the entry is unsafe or too much.
        """
        self._count(entry)
        path = self._path(entry.path)
        match entry.kind:
            case EntryKind.FOLDER:
                if path in self._leaves:
                    raise _unsafe(f"{_show(entry.path)} appears twice", entry.path)
                self._folders.add(path)
                return path
            case EntryKind.FILE:
                pass
            case EntryKind.SYMLINK:
                _check_target(path, entry.target)
            case EntryKind.HARDLINK | EntryKind.OTHER:
                raise _unsafe(f"{_show(entry.path)} is a {entry.kind}", entry.path)
        if not path or path in self._leaves or path in self._folders:
            raise _unsafe(f"{_show(entry.path)} appears twice", entry.path)
        self._leaves.add(path)
        return path

    def _count(self, entry: Entry) -> None:
        self._entries += 1
        if self._entries > self._limits.files:
            raise too_many(self._limits.files)
        if entry.nbytes < 0:
            raise _unsafe(f"{_show(entry.path)} has a negative size", entry.path)
        self._nbytes += entry.nbytes
        if self._nbytes > self._limits.unpacked_nbytes:
            raise too_large(self._limits.unpacked_nbytes, "unpacked zoo")

    def _path(self, text: str) -> str:
        if len(text) > _MAX_PATH_BYTES:
            raise _unsafe("a path is too long", text)
        if text.startswith("/"):
            raise _unsafe(f"{_show(text)} is an absolute path", text)
        if "\\" in text or not _is_plain(text):
            raise _unsafe(f"{_show(text)} has characters that are not allowed in a path", text)
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise _unsafe(f"{_show(text)} leads out of the zoo", text)
        if len(parts) > _DEEPEST or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
            raise _unsafe("a path is too long or too deep", text)
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            if parent in self._leaves:
                raise _unsafe(f"{_show(text)} is below a link or a file", text)
            self._folders.add(parent)
        # Folders that no entry names are made, too. The root stands for the present entry.
        if len(self._leaves) + len(self._folders) > self._limits.files:
            raise too_many(self._limits.files)
        return "/".join(parts)


def too_large(limit: int, what: str) -> BuilderError:
    """Return the refusal of something larger than its limit in bytes."""
    return BuilderError(
        Reason.LIMIT,
        f"the {what} is larger than {limit} bytes",
        where="archive",
        remedy="Leave data, caches and version control out of the zoo.",
    )


def too_many(limit: int) -> BuilderError:
    """Return the refusal of more entries than the limit."""
    return BuilderError(
        Reason.LIMIT,
        f"the zoo has more than {limit} files and folders",
        where="archive",
        remedy="Leave data, caches and version control out of the zoo.",
    )


def _check_target(path: str, target: str) -> None:
    if not target or target.startswith("/") or "\\" in target or not _is_plain(target):
        raise _unsafe(f"{_show(path)} links to {_show(target)}, out of the zoo", path)
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    # `folder/..` would be resolved through whatever link `folder` is.
    if ".." in parts[climbs:] or climbs > posixpath.dirname(path).count("/") + bool(
        posixpath.dirname(path)
    ):
        raise _unsafe(f"{_show(path)} links to {_show(target)}, out of the zoo", path)


def _is_plain(text: str) -> bool:
    """Tell whether a name has neither control characters nor undecodable bytes."""
    return all(ch.isprintable() for ch in text)


def _show(text: str) -> str:
    return ascii(text[:80])


def _unsafe(what: str, path: str) -> BuilderError:
    return BuilderError(
        Reason.UNSAFE,
        what,
        where=f"archive: {_show(path)}",
        remedy="Send plain files, folders, and links that stay within the zoo.",
    )
