"""A model zoo in a git repository, as people name it: ``https://host/path.git#REF:FOLDER``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,254}")
_FOLDER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_. +=-]*(?:/[A-Za-z0-9_.][A-Za-z0-9_. +=-]*)*")


@dataclass(frozen=True, slots=True)
class GitZoo:
    """Where the zoo is.

    Attributes:
        url: https, without user, password and ref.
        ref: branch, tag or commit; empty: the default branch.
        folder: the zoo within the repository; empty: its root.
    """

    url: str
    ref: str = ""
    folder: str = ""

    def __str__(self) -> str:
        behind = f"#{self.ref}" if self.ref or self.folder else ""
        return self.url + behind + (f":{self.folder}" if self.folder else "")


def parse(text: str) -> GitZoo | None:
    """Read a zoo's name; None if it is a place of this machine.

    ``#REF``, ``#REF:FOLDER`` and ``#:FOLDER`` follow the URL; so may ``@REF``.

    Raises:
        ValueError: with a clause that says why this is no repository that can be fetched.
    """
    if not _REMOTE.match(text) or text.startswith("file://"):
        return None
    # Nothing of a URL is repeated before it is known to hold no password.
    bare, mark, behind = text.partition("#")
    try:
        parts = urlsplit(bare)
        port = parts.port
    except ValueError:
        raise ValueError("the URL is malformed") from None
    if parts.scheme != "https":
        raise ValueError("only https repositories are fetched")
    if "@" in parts.netloc or not parts.hostname:
        raise ValueError("the URL holds a user name or password, or no host")
    if parts.query or not bare.isascii() or not bare.isprintable() or " " in bare:
        raise ValueError("the URL is malformed")
    path, at, ref = parts.path.partition("@")
    folder = ""
    if mark:
        if at:
            raise ValueError("a ref is given twice, behind @ and behind #")
        ref, _, folder = behind.partition(":")
    if (at and not ref) or (mark and not behind):
        raise ValueError("the ref is empty")
    if ref and (not _REF.fullmatch(ref) or ".." in ref or "//" in ref or ref.endswith("/")):
        raise ValueError(f"{ref[:80]!r} is no branch, tag or commit")
    parts_of_folder = folder.split("/")
    if folder and (not _FOLDER.fullmatch(folder) or {".", ".."} & set(parts_of_folder)):
        raise ValueError(f"{folder[:80]!r} is no folder of a repository")
    if path.strip("/") == "":
        raise ValueError("the URL names no repository")
    host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
    return GitZoo(f"https://{host}{f':{port}' if port else ''}{path}", ref, folder)
