"""Events: everything that can happen to builds. Only events change a build."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.build import BuildResult, SourceKind
from edl_builder.core.failure import Failure
from edl_builder.core.identifiers import BuildId, BuildIdentity, Caller


@dataclass(frozen=True, slots=True)
class BuildRequested:
    """A caller requested a build and was authorized.

    Attributes:
        at_once: how many builds of this caller the engine works on at a time; 0: as many as it can.
    """

    build: BuildId
    caller: Caller
    source: SourceKind
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class ArchiveReceived:
    """The archive is complete."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class ResolvingStarted:
    """The source is complete; the key is computed and looked up."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class ContextPrepared:
    """The context is complete, and the registry does not have the image."""

    build: BuildId
    identity: BuildIdentity


@dataclass(frozen=True, slots=True)
class PushStarted:
    """The image is built."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildSucceeded:
    """The image is in the registry, built or found; its ``seconds`` are not known yet."""

    build: BuildId
    result: BuildResult


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """The work for a build failed or was cancelled."""

    build: BuildId
    failure: Failure


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A caller cancels the build."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A call follows the build."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A call no longer follows the build: it returned or lost its connection."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildRecovered:
    """An unfinished build was found on disk after a restart.

    Attributes:
        identity: known if it had been prepared.
        attempts: how often the engine has started it.
        callers: all callers that requested it.
        at_once: as in the request.
    """

    build: BuildId
    caller: Caller
    callers: frozenset[Caller]
    source: SourceKind
    submitted: float
    identity: BuildIdentity | None
    attempts: int
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class ServiceStopped:
    """The service stops all work; the next one starts it again."""


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
    | ServiceStopped
    | Tick
)
