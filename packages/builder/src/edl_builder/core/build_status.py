"""The status of builds, as callers see it."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.build import Build, BuildResult, Phase
from edl_builder.core.failure import Failure
from edl_builder.core.identifiers import BuildId, Key
from edl_runtime.timestamps import rfc3339


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a build's log; ``number`` counts from 1, ``at`` is RFC 3339."""

    number: int
    at: str
    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """A build as it is now; ``queue_position`` counts from 1 in a queue and is 0 otherwise."""

    id: BuildId
    phase: Phase
    key: Key | None
    repository: str
    submitted_at: str
    finished_at: str
    queue_position: int
    subscribers: int
    result: BuildResult | None
    failure: Failure | None


def status_of(build: Build, repository: str, position: int) -> BuildStatus:
    """Return the status of a build."""
    key = build.identity.key if build.identity else build.result.key if build.result else None
    return BuildStatus(
        build.id,
        build.phase,
        key,
        repository,
        rfc3339(build.submitted),
        rfc3339(build.finished) if build.finished else "",
        position,
        build.subscribers,
        build.result,
        build.failure,
    )
