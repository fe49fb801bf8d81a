"""Facts: everything that can happen to builds. Nothing else ever changes one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl_builder.core.names import BuildId, BuildIdentity, Caller, Failure, Result


class SourceKind(StrEnum):
    ARCHIVE = "archive"
    GIT = "git"


@dataclass(frozen=True, slots=True)
class BuildRequested:
    """Somebody wants a build; what is asked has been judged and is allowed."""

    build: BuildId
    caller: Caller
    source: SourceKind


@dataclass(frozen=True, slots=True)
class ArchiveReceived:
    """The archive is here as a whole."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class ResolvingStarted:
    """The source is here; the key is being made and looked up."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class ContextPrepared:
    """The context is ready to be built, and the registry has no such image."""

    build: BuildId
    identity: BuildIdentity


@dataclass(frozen=True, slots=True)
class PushStarted:
    """The image is built."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildSucceeded:
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
class Subscribed:
    """A caller waits for it."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A caller waits no longer: it has left, or its connection has."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildRecovered:
    """Found on disk after a restart, not ended.

    Attributes:
        identity: known if it had been prepared.
        attempts: how often it has been begun to be built.
        callers: everybody who has asked for it.
    """

    build: BuildId
    caller: Caller
    callers: frozenset[Caller]
    source: SourceKind
    submitted: float
    identity: BuildIdentity | None
    attempts: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    BuildRequested
    | ArchiveReceived
    | ResolvingStarted
    | ContextPrepared
    | PushStarted
    | BuildSucceeded
    | WorkFailed
    | CancelRequested
    | Subscribed
    | Unsubscribed
    | BuildRecovered
    | Tick
)
