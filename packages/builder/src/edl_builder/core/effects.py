"""Decisions to act, in the order in which they are to be carried out."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.names import BuildId, BuildIdentity, Failure


@dataclass(frozen=True, slots=True)
class StartPreparing:
    """Fetch if it is git, judge, make the key, look it up."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class StartBuilding:
    """Look once more, build, push."""

    build: BuildId
    identity: BuildIdentity
    attempt: int


@dataclass(frozen=True, slots=True)
class CancelWork:
    """End what is being done for it; ``WorkFailed`` will follow."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildChanged:
    """Write it down, and tell who waits."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class BuildMerged:
    """``build`` is the same as ``other``, which is under way: it becomes another name for it."""

    build: BuildId
    other: BuildId


@dataclass(frozen=True, slots=True)
class BuildFinished:
    """Nothing more will happen to it; its context is not needed any more."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class ForgetBuild:
    """Too old: remove all of it."""

    build: BuildId


@dataclass(frozen=True, slots=True)
class PruneImages:
    """Nothing is being built: the engine can be cleaned."""


@dataclass(frozen=True, slots=True)
class RequestRejected:
    """The request is not taken; nothing is kept of it."""

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
