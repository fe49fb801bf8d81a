"""Basic types: ids, phases, reasons, failures, results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NewType

BuildId = NewType("BuildId", str)
Caller = NewType("Caller", str)
"""Name of a tenant, or the address of the peer where the service is open."""

Key = NewType("Key", str)
"""Of content, base and requirements: equal keys, equal images. 64 hexadecimal digits."""


class Phase(StrEnum):
    """Where a build is."""

    RECEIVING = "receiving"
    FETCHING = "fetching"
    RESOLVING = "resolving"
    QUEUED = "queued"
    BUILDING = "building"
    PUSHING = "pushing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED, Phase.CANCELLED)


class Reason(StrEnum):
    """The category of a failure; the values are labels of metrics."""

    INVALID = "invalid"  # the request is wrong
    UNSAFE = "unsafe"  # it tries to reach what it must not
    FORBIDDEN = "forbidden"  # this caller may not
    LIMIT = "limit"  # too large, too many
    NOT_FOUND = "not_found"
    SOURCE = "source"  # the zoo cannot be fetched
    BUILD = "build"  # a step of the build failed
    ENGINE = "engine"  # no engine
    REGISTRY = "registry"  # no registry, or it refuses
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    RESTARTED = "restarted"  # the service ended meanwhile
    INTERNAL = "internal_error"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: reason, what happened, where, and what to do."""

    reason: Reason
    what: str
    where: str = ""
    remedy: str = ""
    detail: str = ""

    def redacted(self, redact: Callable[[str], str]) -> Failure:
        """The failure without secrets."""
        return replace(
            self,
            what=redact(self.what),
            where=redact(self.where),
            detail=redact(self.detail),
        )


class BuilderError(Exception):
    """A request, a build or the start of the builder fails, with a failure for the caller."""

    def __init__(
        self, reason: Reason, what: str, *, where: str = "", remedy: str = "", detail: str = ""
    ) -> None:
        super().__init__(what)
        self.failure = Failure(reason, what, where, remedy, detail)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """An image that can be pulled.

    Attributes:
        image: ``repository@sha256:...``.
        nbytes: what a puller downloads: compressed layers and configuration.
        seconds: from the request to the end.
        layers: steps of the build, 0 if nothing was built.
        cached_layers: of these, how many the engine had.
        reused: found in the registry.
    """

    image: str
    nbytes: int
    seconds: float
    layers: int
    cached_layers: int
    reused: bool
    key: Key


@dataclass(frozen=True, slots=True)
class BuildIdentity:
    """Requests with equal identities become one build."""

    repository: str
    key: Key
    tag: str

    @property
    def content(self) -> tuple[str, Key]:
        """The content, of which only one build runs at a time."""
        return self.repository, self.key
