"""Checks a zoo's requirements.txt, which may hold packages, but no options for pip.

pip never sees the file of the zoo. It gets what was read here, written anew: pip's own reader
expands variables, obeys a declared encoding and follows other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.source_policy import is_public_name

FILE = "requirements.txt"
_MAX_BYTES = 256 * 1024
_FREE = frozenset({"--pre", "--prefer-binary", "--require-hashes"})
_WITH_NAME = frozenset({"--only-binary", "--no-binary"})
_WITH_URL = frozenset({"--index-url", "-i", "--extra-index-url", "--find-links", "-f"})
_NAME = re.compile(r"[A-Za-z0-9:,._-]+")
_HASH = re.compile(r"--hash=(?:sha256|sha384|sha512):[0-9a-f]+")
_VERSIONS = re.compile(r"[A-Za-z0-9.*+!,<>=~-]*")
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!&()*+,=%-]+")
_COMMENT = re.compile(r"(^|\s+)#.*$")
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".tlz", ".lzma")
"""pip mistakes a name with such a suffix for a file of the machine."""


def read_requirements(content: bytes) -> bytes:
    """Check a requirements.txt and rewrite it as the one file that pip gets.

    Packages, hashes, and indexes over https without passwords are accepted. Other files,
    editable and local packages, variables, and options that weaken the transport are not: only
    this file is in the layer that pip installs.

    Returns:
        One requirement or option per line, in ASCII, without comments; empty if there is none.

    Raises:
        BuilderError: with the number of the line.
    """
    if len(content) > _MAX_BYTES:
        raise BuilderError(Reason.LIMIT, f"{FILE} is larger than {_MAX_BYTES} bytes", where=FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BuilderError(Reason.INVALID, f"{FILE} is not UTF-8 text", where=FILE) from None
    read = (_read_line(line, number) for number, line in _lines(text))
    return "".join(f"{line}\n" for line in read if line).encode("ascii")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines, with continued ones joined as pip does: comments do not continue."""
    pending, start = "", 1
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if not pending:
            start = number
        if line.endswith("\\") and not _COMMENT.match(line):
            pending += line[:-1] + " "
            continue
        yield start, pending + line
        pending = ""
    yield start, pending


def _read_line(line: str, number: int) -> str:
    """Return a line as pip gets it; empty if it has no content."""
    where = f"{FILE}, line {number}"
    line = _COMMENT.sub("", line).replace("\t", " ")
    if not (line.isascii() and line.isprintable()):
        raise BuilderError(
            Reason.INVALID, "only plain ASCII is accepted outside of comments", where=where
        )
    words = line.split()
    if not words:
        return ""
    first, _, value = words[0].partition("=")
    if not first.startswith("-"):
        return _read_package(words, where)
    values = [value] if value else words[1:]
    if first in _FREE and len(words) == 1 and not value:
        return first
    if len(values) == 1 and len(words) <= 2:
        if first in _WITH_NAME and _NAME.fullmatch(values[0]):
            return f"{first} {values[0]}"
        if first in _WITH_URL:
            _check_url(values[0], where)
            return f"{first} {values[0]}"
    raise BuilderError(
        Reason.INVALID,
        f"{first[:40]!r} is not accepted here",
        where=where,
        remedy="List packages; other files, editable and local packages are not accepted.",
    )


def _read_package(words: list[str], where: str) -> str:
    text = " ".join(words).replace("--hash ", "--hash=")
    package, *hashes = re.split(r" (?=--)", text)
    try:
        found = Requirement(package)
    except InvalidRequirement:
        raise _no_package(package, where) from None
    local = f"{found.name}{found.specifier}".lower().endswith(_ARCHIVES)
    if (local and not found.url) or not _VERSIONS.fullmatch(str(found.specifier)):
        raise _no_package(package, where)
    if not all(_HASH.fullmatch(each) for each in hashes):
        raise _no_package(package, where)
    if found.url:
        _check_url(found.url, where)
    shown = str(found)
    # A marker may hold any text: none that pip would expand or split.
    if "${" in shown or "\\" in shown or " --" in shown:
        raise _no_package(package, where)
    return " ".join([shown, *hashes])


def _no_package(text: str, where: str) -> BuilderError:
    return BuilderError(
        Reason.INVALID,
        # What follows an @ may hold a password.
        f"{text.split('@')[0][:80]!r} is not a package",
        where=where,
        remedy="Write name, name==1.2.3 or name @ https://….",
    )


def _check_url(text: str, where: str) -> None:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    # The text is not shown: it may hold a password.
    scheme = parts.scheme.removeprefix("git+")
    if scheme != "https" or "@" in parts.netloc or not host or not _URL.fullmatch(text):
        raise BuilderError(
            Reason.UNSAFE,
            "only plain https URLs without a user name or password are accepted",
            where=where,
            remedy="Have the operator of the builder set up a private index.",
        )
    if not is_public_name(host):
        raise BuilderError(
            Reason.UNSAFE,
            f"the builder does not fetch from {host[:80]!r}",
            where=where,
            remedy="Name a public host, or have the builder's operator set up a private index.",
        )
