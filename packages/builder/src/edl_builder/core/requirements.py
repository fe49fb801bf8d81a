"""What a zoo's requirements.txt may hold: packages, not options for pip."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from edl_builder.core.names import BuilderError, Reason

FILE = "requirements.txt"
_LARGEST = 256 * 1024
_FREE = frozenset({"--pre", "--prefer-binary", "--require-hashes"})
_WITH_NAME = frozenset({"--only-binary", "--no-binary"})
_WITH_URL = frozenset({"--index-url", "-i", "--extra-index-url", "--find-links", "-f"})
_NAME = re.compile(r"[A-Za-z0-9:,._-]+")
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?=$|[\s\[<>=!~;@(])")


def check_requirements(content: bytes) -> None:
    """Judge a requirements.txt.

    Packages, hashes, and indexes over https without passwords are accepted. Other files,
    editable and local packages, and options that weaken the transport are not: only this file
    is in the layer that pip installs.

    Raises:
        BuilderError: with the number of the line.
    """
    if len(content) > _LARGEST:
        raise BuilderError(Reason.LIMIT, f"{FILE} is larger than {_LARGEST} bytes", where=FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BuilderError(Reason.INVALID, f"{FILE} is not UTF-8 text", where=FILE) from None
    number, pending, start = 0, "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending:
            start = number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        _check_line(pending + line, start)
        pending = ""
    if pending:
        _check_line(pending, start)


def _check_line(line: str, number: int) -> None:
    words = re.sub(r"(^|\s)#.*$", "", line).split()
    if not words:
        return
    where = f"{FILE}, line {number}"
    first, _, value = words[0].partition("=")
    if not first.startswith("-"):
        _check_package(words, where)
        return
    values = [value] if value else words[1:]
    if first in _FREE and not values:
        return
    if first in _WITH_NAME and len(values) == 1 and _NAME.fullmatch(values[0]):
        return
    if first in _WITH_URL and len(values) == 1:
        _check_url(values[0], where)
        return
    raise BuilderError(
        Reason.INVALID,
        f"{first[:40]!r} is not taken here",
        where=where,
        remedy="List packages; other files, editable and local packages are not taken.",
    )


def _check_package(words: list[str], where: str) -> None:
    text = " ".join(word for word in words if not word.startswith("--hash="))
    if not _PACKAGE.match(text) or " --" in f" {text}":
        raise BuilderError(
            Reason.INVALID,
            f"{text.split('@')[0][:80]!r} is no package",
            where=where,
            remedy="Write name, name==1.2.3 or name @ https://….",
        )
    _, at, url = text.partition("@")
    if at:
        _check_url(url.split(";")[0].strip(), where)


def _check_url(text: str, where: str) -> None:
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    # The text is not shown: it may hold a password.
    scheme = parts.scheme.removeprefix("git+")
    if scheme != "https" or "@" in parts.netloc or not parts.hostname:
        raise BuilderError(
            Reason.UNSAFE,
            "only https URLs without a user name or password are accepted",
            where=where,
            remedy="Have the operator of the builder set up a private index.",
        )
