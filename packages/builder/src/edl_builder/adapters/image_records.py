"""Records of the images that this builder has built; it reuses no others.

A tag in a registry says nothing about who has pushed it. What counts is the digest, which
the builder noted when it pushed the image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from pathlib import Path

from edl_runtime.files import replace_file
from edl_runtime.image_names import is_digest

_MAX_RECORDS = 20_000
"""Limit on records; the images of the least recently used ones are built again."""


class ImageRecords:
    """A folder with one small file for each image; thread-safe.

    Args:
        folder: made if it is not there.
        most: how many records are kept; until they are counted again, a tenth more.

    Raises:
        OSError: the folder cannot be made or read.
    """

    def __init__(self, folder: Path, most: int = _MAX_RECORDS) -> None:
        self._folder = folder
        self._most = most
        self._lock = threading.Lock()
        self._added = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._prune()

    def find(self, repository: str, key: str) -> str | None:
        """Return the digest of the image that was built for a key in a repository, or None."""
        path = self._path(repository, key)
        try:
            found = json.loads(path.read_text("utf-8"))
            if (found["repository"], found["key"]) != (repository, key):
                return None
            digest = str(found["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not is_digest(digest):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return digest

    def add(self, repository: str, key: str, digest: str) -> None:
        """Record an image atomically, in place of an earlier one."""
        record = {"repository": repository, "key": key, "digest": digest}
        replace_file(self._path(repository, key), json.dumps(record).encode(), durable=True)
        with self._lock:
            self._added += 1
            # To count them takes as long as they are many.
            if self._added > self._most // 10:
                self._added = 0
                self._prune()

    def _prune(self) -> None:
        newest = sorted(self._folder.iterdir(), key=_used_at, reverse=True)
        for path in newest[self._most :]:
            path.unlink(missing_ok=True)

    def _path(self, repository: str, key: str) -> Path:
        return self._folder / hashlib.sha256(f"{repository}\0{key}".encode()).hexdigest()


def _used_at(path: Path) -> float:
    """Return when a record was last used; 0 if it is gone, as temporary files soon are."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
