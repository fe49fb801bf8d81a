"""Builds as shown: what callers see of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from edl_builder.core.builds import Build
from edl_builder.core.names import BuildId, Failure, Key, Phase, Result


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a build's log; ``number`` counts from 1, ``at`` is RFC 3339."""

    number: int
    at: str
    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """A build as it is now; ``position`` counts from 1 while it waits."""

    id: BuildId
    phase: Phase
    key: Key | None
    repository: str
    submitted_at: str
    finished_at: str
    position: int
    waiting: int
    result: Result | None
    failure: Failure | None


def rfc3339(seconds: float) -> str:
    """A time in UTC, in words."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def view_of(build: Build, repository: str, position: int) -> View:
    """A build as shown."""
    key = build.identity.key if build.identity else build.result.key if build.result else None
    return View(
        build.id,
        build.phase,
        key,
        repository,
        rfc3339(build.submitted),
        rfc3339(build.finished) if build.finished else "",
        position,
        build.waiting,
        build.result,
        build.failure,
    )
