"""The failures of requests, builds and the start of the builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


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

    def redact(self, redact: Callable[[str], str]) -> Failure:
        """Return the failure without secrets."""
        return replace(
            self,
            what=redact(self.what),
            where=redact(self.where),
            detail=redact(self.detail),
        )


class BuilderError(Exception):
    """Carries the failure of a request, a build or the start of the builder to the caller."""

    def __init__(
        self, reason: Reason, what: str, *, where: str = "", remedy: str = "", detail: str = ""
    ) -> None:
        super().__init__(what)
        self.failure = Failure(reason, what, where, remedy, detail)
