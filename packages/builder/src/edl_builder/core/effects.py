"""Effects: what the service has to do, in this order."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.failure import Failure
from edl_builder.core.identifiers import BuildId, BuildIdentity


@dataclass(frozen=True, slots=True)
class StartPreparing:
    """Fetch a git source, check the zoo, compute its key and look it up in the registry."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class StartBuilding:
    """Look up again, build and push."""

    build: BuildId
    identity: BuildIdentity


@dataclass(frozen=True, slots=True)
class CancelWork:
    """Cancel the work for it; the event ``WorkFailed`` follows."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildChanged:
    """Save the build and wake its subscribers."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildMerged:
    """``build`` equals ``other``, which has not ended: its id becomes an alias of the other."""

    build: BuildId
    other: BuildId


@dataclass(frozen=True, slots=True)
class BuildFinished:
    """The build has ended; its context can be removed."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class ForgetBuild:
    """Remove an old build and its files."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class PruneImages:
    """No build runs: prune the engine's images."""


@dataclass(frozen=True, slots=True)
class RequestRejected:
    """Refuse the request; nothing of it is kept."""

    build: BuildId
    failure: Failure


Effect = (
    StartPreparing
    | StartBuilding
    | CancelWork
    | BuildChanged
    | BuildMerged
    | BuildFinished
    | ForgetBuild
    | PruneImages
    | RequestRejected
)
