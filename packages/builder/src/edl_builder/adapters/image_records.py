"""Records of the images that this builder has built; it reuses no others.

A tag in a registry says nothing about who has pushed it. What counts is the digest, which
the builder noted when it pushed the image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from edl_proto.files import replace_file
from edl_proto.images.names import is_digest

_MOST = 20_000
"""Records; of those that were not used for longest, the images are built again."""


class ImageRecords:
    """A folder with one small file for each image.

    Args:
        folder: made if it is not there.
        most: how many records a start of the builder leaves.
    """

    def __init__(self, folder: Path, most: int = _MOST) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in _newest_first(list(folder.iterdir()))[most:]:
            path.unlink(missing_ok=True)

    def find(self, repository: str, key: str) -> str | None:
        """The digest of the image that was built for a key in a repository; None if none was."""
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
        """Note an image, whole or not at all; it takes the place of an earlier one."""
        record = {"repository": repository, "key": key, "digest": digest}
        replace_file(self._path(repository, key), json.dumps(record).encode(), durable=True)

    def _path(self, repository: str, key: str) -> Path:
        return self._folder / hashlib.sha256(f"{repository}\0{key}".encode()).hexdigest()


def _newest_first(paths: Sequence[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
