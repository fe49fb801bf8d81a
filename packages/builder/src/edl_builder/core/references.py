"""Parses names of images strictly: what does not match is refused, never quoted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.identifiers import Key
from edl_runtime.image_names import DOCKER_HUB, is_digest

MAX_CHARS = 255

_HOST = r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
_IPV6 = r"\[[0-9a-f:]{2,39}\]"
_DOMAIN = re.compile(rf"(?:{_HOST}|{_IPV6})(?::[0-9]{{1,5}})?")
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?(?:/[a-z0-9][a-z0-9._-]{0,62})?")

OUR_LABELS = "io.edl."
_MAX_LABELS = 32
_MAX_LABEL_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Reference:
    """``registry/path[:tag][@digest]``, in full."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        return f"{self.registry}/{self.path}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.repository}{tag}{digest}"


def parse_reference(text: str, what: str) -> Reference:
    """Parse the name of an image.

    Args:
        text: as a person writes it; ``debian:12`` means Docker Hub's.
        what: how the field is called, for the message.

    Raises:
        BuilderError: it is no such name.
    """
    problem = _refuse_reference(what, text)
    if not text or len(text) > MAX_CHARS:
        raise problem
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise problem
    head, slash, tail = rest.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        registry, rest = head, tail
    else:
        registry = DOCKER_HUB
    path, colon, tag = rest.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise problem
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    if not _DOMAIN.fullmatch(registry):
        raise problem
    if not all(_COMPONENT.fullmatch(part) for part in path.split("/")):
        raise problem
    return Reference(registry, path, tag, digest)


def parse_repository(text: str) -> Reference:
    """Parse ``registry/path`` to push to; the registry must be named.

    Raises:
        BuilderError: it is no such name, or has a tag or digest.
    """
    found = parse_reference(text, "repository")
    if found.tag or found.digest or str(found) != text:
        raise _refuse_reference("repository", text)
    return found


def check_tag(text: str) -> None:
    """Raise BuilderError for an invalid tag, or one of the builder's own."""
    if text and (not _TAG.fullmatch(text) or text.startswith(KEY_TAG)):
        raise BuilderError(
            Reason.INVALID,
            f"{text[:80]!r} cannot be a tag",
            where="tag",
            remedy="Use letters, digits, '_', '.' and '-', at most 128, not starting with "
            f"'.', '-' or {KEY_TAG!r}.",
        )


def check_labels(labels: Sequence[tuple[str, str]]) -> None:
    """Raise BuilderError for a name or value that an image should not carry."""
    if len(labels) > _MAX_LABELS:
        raise BuilderError(Reason.LIMIT, f"more than {_MAX_LABELS} labels", where="labels")
    for name, value in labels:
        if not _LABEL.fullmatch(name) or name.startswith(OUR_LABELS):
            raise BuilderError(
                Reason.INVALID,
                f"{name[:80]!r} cannot be the name of a label",
                where="labels",
                remedy=f"Use lower-case letters, digits, '.', '-'; {OUR_LABELS}* is taken.",
            )
        if len(value) > _MAX_LABEL_CHARS or not value.isprintable():
            raise BuilderError(
                Reason.INVALID,
                f"the value of label {name!r} is too long or not printable",
                where="labels",
            )


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Tell whether a name matches one of the patterns; ``*`` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


KEY_TAG = "edl-"
"""The prefix of the tags that the builder makes from keys; callers cannot choose them."""


def key_tag(key: Key) -> str:
    """Return the tag under which a key is looked up."""
    return f"{KEY_TAG}{key}"


def _refuse_reference(what: str, text: str) -> BuilderError:
    return BuilderError(
        Reason.INVALID,
        f"{text[:80]!r} is not the name of an image" if text else f"no {what} is given",
        where=what,
        remedy="Write registry.example.com/team/name"
        + (", without a tag." if what == "repository" else ":tag or @sha256:digest."),
    )
