"""One build: its source, phase and result; and the limits of all builds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl_builder.core.failure import Failure
from edl_builder.core.identifiers import BuildId, BuildIdentity, Caller, Key


class SourceKind(StrEnum):
    """The kind of a build's source."""

    ARCHIVE = "archive"
    GIT = "git"


class Phase(StrEnum):
    """The phase of a build."""

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
class BuildLimits:
    """Limits of the queue; ``config`` has the reasons.

    Attributes:
        building: builds that the engine works on at a time.
        preparing: builds whose source is fetched, checked and looked up at a time.
        waiting: builds that have not ended, of all callers.
        waiting_per_caller: builds that have not ended, of one caller.
        receive_s: longest upload.
        prepare_s: longest preparation.
        build_s: longest build, and longest push.
        abandon_s: a build without subscribers is cancelled after this time.
        attempts: how often a build is started, counting restarts of the builder.
        keep: finished builds that stay known.
        keep_s: how long a finished build stays known.
    """

    building: int = 2
    preparing: int = 4
    waiting: int = 200
    waiting_per_caller: int = 50
    receive_s: float = 900.0
    prepare_s: float = 600.0
    build_s: float = 3600.0
    abandon_s: float = 60.0
    attempts: int = 2
    keep: int = 500
    keep_s: float = 7 * 86400.0


@dataclass(slots=True)
class Build:
    """The present state of a build. Only the state machine changes it.

    Attributes:
        submitted: time of the request.
        since: time at which the build entered its phase.
        callers: all callers that requested this build.
        identity: known once the build is prepared.
        subscribers: calls that follow the build.
        unsubscribed_since: since when there is no subscriber; None if there is one, or if the
            build was recovered after a restart.
        attempts: how often the engine has started it.
        at_once: how many builds of its caller the engine works on at a time; 0: as many as it can.
        is_working: whether a thread prepares or builds it.
        cancel_failure: the failure with which it will end, once its thread has stopped.
    """

    id: BuildId
    caller: Caller
    source: SourceKind
    phase: Phase
    submitted: float
    since: float
    callers: frozenset[Caller] = frozenset()
    identity: BuildIdentity | None = None
    subscribers: int = 0
    unsubscribed_since: float | None = None
    attempts: int = 0
    at_once: int = 0
    is_working: bool = False
    cancel_failure: Failure | None = None
    finished: float | None = None
    result: BuildResult | None = None
    failure: Failure | None = None
