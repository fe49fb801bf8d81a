"""Archives for tests."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence


def member(name: str, **settings: object) -> tarfile.TarInfo:
    """An entry with these fields, whatever they are."""
    info = tarfile.TarInfo(name)
    for field, value in settings.items():
        setattr(info, field, value)
    return info


def tar(
    files: Mapping[str, str | bytes] | None = None,
    others: Sequence[tarfile.TarInfo] = (),
    *,
    zipped: bool = False,
) -> bytes:
    """A tar archive of these files, and of entries as they are."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, text in (files or {}).items():
            content = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
        for info in others:
            out.addfile(info, io.BytesIO(bytes(info.size)) if info.isreg() else None)
    return gzip.compress(buffer.getvalue()) if zipped else buffer.getvalue()
