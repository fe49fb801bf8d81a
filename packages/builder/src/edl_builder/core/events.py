"""Facts: everything that can happen to builds. Nothing else ever changes one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl_builder.core.names import BuildId, Caller, Failure, Identity, Result


class Source(StrEnum):
    ARCHIVE = "archive"
    GIT = "git"


@dataclass(frozen=True, slots=True)
class Requested:
    """Somebody wants a build; what is asked has been judged and is allowed."""

    build: BuildId
    caller: Caller
    source: Source


@dataclass(frozen=True, slots=True)
class Received:
    """The archive is here as a whole."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Resolving:
    """The source is here; the key is being made and looked up."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Prepared:
    """The context is ready to be built, and the registry has no such image."""

    build: BuildId
    identity: Identity


@dataclass(frozen=True, slots=True)
class Pushing:
    """The image is built."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The image is in the registry, built or found."""

    build: BuildId
    result: Result


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """What was done for a build ended without success, also because it was told to."""

    build: BuildId
    failure: Failure


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants it to end."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Attached:
    """A caller waits for it."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Detached:
    """A caller waits no longer: it has left, or its connection has."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Recovered:
    """Found on disk after a restart, not ended.

    Attributes:
        identity: known if it had been prepared.
        attempts: how often it has been begun to be built.
        callers: everybody who has asked for it.
    """

    build: BuildId
    caller: Caller
    callers: frozenset[Caller]
    source: Source
    submitted: float
    identity: Identity | None
    attempts: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Requested
    | Received
    | Resolving
    | Prepared
    | Pushing
    | Succeeded
    | WorkFailed
    | CancelRequested
    | Attached
    | Detached
    | Recovered
    | Tick
)
