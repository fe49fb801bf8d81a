"""Redaction: removes secrets and control characters from every line and message."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edl_runtime.public_settings import without_passwords

MAX_LINE_CHARS = 4000
"""The number of characters of a line that are kept."""

_MASK = "***"
_SHORTEST = 4
"""Shorter secrets would mask half of every log, and protect nothing."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_AUTHORIZATION = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}")


class Redactor:
    """Removes known secrets, passwords in URLs and authorization headers from text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(_MASK, text)
        text = without_passwords(text, f"{_MASK}@")
        return _AUTHORIZATION.sub(rf"\1 {_MASK}", text)


def without_escapes(line: str) -> str:
    """Remove escape sequences from a line, also one that never ends."""
    return _ESCAPES.sub("", line)


def printable(line: str) -> str:
    """Remove escape sequences from a line, and replace other control characters by ``?``."""
    clean = without_escapes(line)
    return "".join(ch if ch.isprintable() or ch == "\t" else "?" for ch in clean)
