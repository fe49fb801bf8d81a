"""A model zoo in a git repository: parsing of URL, ref and folder.

Pure syntax. Which hosts, addresses and paths may be fetched is the policy of the process that
fetches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

_MAX_URL_LENGTH = 2048
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,254}")
_FOLDER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_. +@=-]*(?:/[A-Za-z0-9_.][A-Za-z0-9_. +@=-]*)*")

Part = Literal["scheme", "password", "url", "ref", "folder"]


class GitSourceError(ValueError):
    """The text does not name a git source that could be fetched.

    Args:
        part: the part of the source that is wrong.
        message: a clause that says why. It never repeats a password.
    """

    def __init__(self, part: Part, message: str) -> None:
        super().__init__(message)
        self.part: Part = part


@dataclass(frozen=True, slots=True)
class GitUrl:
    """An https URL without user, password, query and fragment.

    Attributes:
        host: name or address in lower case; an IPv6 address is in brackets.
        port: 443 by default.
        path: begins with a slash.
    """

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        port = "" if self.port == 443 else f":{self.port}"
        return f"https://{self.host}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class GitSource:
    """A model zoo in a repository.

    Attributes:
        url: of the repository.
        ref: branch, tag or commit; empty: the default branch.
        folder: the model zoo within the repository; empty: its root.
    """

    url: GitUrl
    ref: str = ""
    folder: str = ""

    def __str__(self) -> str:
        """``URL``, ``URL#REF`` or ``URL#REF:FOLDER``; ``parse`` reads it."""
        suffix = f"#{self.ref}" if self.ref or self.folder else ""
        return f"{self.url}{suffix}" + (f":{self.folder}" if self.folder else "")


def parse(text: str) -> GitSource | None:
    """Parse the name of a model zoo; None if it is a path of this machine.

    ``#REF``, ``#REF:FOLDER`` or ``#:FOLDER`` may follow the URL; so may ``@REF``.

    Raises:
        GitSourceError: the text is a URL that cannot be fetched.
    """
    bare, mark, suffix = text.partition("#")
    is_folder = text.startswith("file://") and not mark and not bare.endswith(".git")
    if not _REMOTE.match(text) or is_folder:
        return None
    authority_end = bare.find("/", bare.find("://") + 3)
    at_index = bare.find("@", authority_end) if authority_end >= 0 else -1
    has_at = at_index >= 0
    url = parse_url(bare[:at_index] if has_at else bare)
    ref, folder = (bare[at_index + 1 :] if has_at else ""), ""
    if mark:
        if has_at:
            raise GitSourceError("ref", "a ref is given twice, after @ and after #")
        ref, _, folder = suffix.partition(":")
    if (has_at and not ref) or (mark and not suffix):
        raise GitSourceError("ref", "the ref is empty")
    return make_source(url, ref, folder)


def parse_url(text: str) -> GitUrl:
    """Parse the URL of a repository.

    Raises:
        GitSourceError: it is malformed, no https URL, or holds a user name or password.
    """
    # No message repeats a part of the URL before it is known to hold no password.
    if len(text) > _MAX_URL_LENGTH or not text.isascii() or not text.isprintable():
        raise GitSourceError("url", "the URL is malformed")
    try:
        parts = urlsplit(text)
        port = 443 if parts.port is None else parts.port
    except ValueError:
        raise GitSourceError("url", "the URL is malformed") from None
    if parts.scheme != "https":
        scheme = repr(parts.scheme[:20]) if parts.scheme else "a path"
        raise GitSourceError("scheme", f"only https repositories are fetched, not {scheme}")
    if "@" in parts.netloc:
        raise GitSourceError("password", "the URL holds a user name or password")
    host = (parts.hostname or "").rstrip(".")
    if not host or not port or parts.query or parts.fragment or set(text) & set(" \\"):
        raise GitSourceError("url", "the URL is malformed")
    if not parts.path.strip("/"):
        raise GitSourceError("url", "the URL names no repository")
    return GitUrl(f"[{host}]" if ":" in host else host, port, parts.path)


def make_source(url: GitUrl, ref: str, folder: str) -> GitSource:
    """Make a source of these parts; neither git nor a shell mistakes ref or folder for an option.

    Raises:
        GitSourceError: the ref is no name of git, or the folder leaves the repository.
    """
    if ref and (
        not _REF.fullmatch(ref)
        or any(each in ref for each in ("..", "@{", "//"))
        or ref.endswith((".lock", "/", "."))
        or any(part.startswith((".", "-")) for part in ref.split("/"))
    ):
        raise GitSourceError("ref", f"{ref[:80]!r} is not a branch, tag or commit")
    if folder and (not _FOLDER.fullmatch(folder) or {".", ".."} & set(folder.split("/"))):
        raise GitSourceError("folder", f"{folder[:80]!r} is not a folder of a repository")
    return GitSource(url, ref, folder)
