"""All builds of one service: facts in, decisions out.

    archive:  RECEIVING ─┐
    git:      QUEUED ──► FETCHING ─► RESOLVING ─► QUEUED ─► BUILDING ─► PUSHING ─► DONE
                                         └ found in the registry ───────────────►

Every phase before DONE may end in FAILED or CANCELLED. A build whose work was told to stop keeps
its slot until the work has stopped, so that no more than so many ever run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from edl_builder.core import effects as do
from edl_builder.core import events as on
from edl_builder.core.fair_queue import FairQueue
from edl_builder.core.names import (
    BuildId,
    Caller,
    Failure,
    Identity,
    Phase,
    Reason,
    Result,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much at a time, and for how long; the reasons are in ``config``."""

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
    """One build as it is now; read it, never change it."""

    id: BuildId
    caller: Caller
    source: on.Source
    phase: Phase
    submitted: float
    since: float
    """When it entered its phase."""
    callers: frozenset[Caller] = frozenset()
    """Everybody who has asked for it."""
    identity: Identity | None = None
    waiting: int = 0
    alone_since: float | None = None
    """Since when nobody waits for it; None if somebody does, or if it survived a restart."""
    attempts: int = 0
    working: bool = False
    stopping: Failure | None = None
    finished: float | None = None
    result: Result | None = None
    failure: Failure | None = None


@dataclass(slots=True)
class _Lanes:
    preparing: FairQueue = field(default_factory=FairQueue)
    building: FairQueue = field(default_factory=FairQueue)


_CANCELLED = Failure(Reason.CANCELLED, "the build was cancelled")


class Builds:
    """The state machine. Not thread-safe: its owner holds a lock."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._builds: dict[BuildId, Build] = {}
        self._aliases: dict[BuildId, BuildId] = {}
        self._lanes = _Lanes()

    # --- looking ---------------------------------------------------------------------------

    def get(self, build: BuildId) -> Build | None:
        """The build of this id, also under the name of one that joined it."""
        return self._builds.get(self._aliases.get(build, build))

    def newest(self) -> list[Build]:
        """All that are known, newest first."""
        return sorted(self._builds.values(), key=lambda b: (b.submitted, b.id), reverse=True)

    def position(self, build: BuildId) -> int:
        """From 1 while it waits, else 0."""
        for lane in (self._lanes.building, self._lanes.preparing):
            for number, each in enumerate(lane.order(), start=1):
                if each == build:
                    return number
        return 0

    # --- facts -----------------------------------------------------------------------------

    def handle(self, event: on.Event, now: float) -> list[do.Effect]:
        """Take a fact, return what is to be done. ``now`` in seconds, never going back."""
        if isinstance(event, on.Tick):
            return self._tick(now)
        if isinstance(event, on.Requested):
            return self._requested(event, now)
        if isinstance(event, on.Recovered):
            return self._recovered(event, now)
        build = self.get(event.build)
        if build is None:
            return []
        match event:
            case on.Attached():
                build.waiting += 1
                build.alone_since = None
                return [do.Changed(build.id)]
            case on.Detached():
                build.waiting -= 1
                if not build.waiting:
                    build.alone_since = now
                return [do.Changed(build.id)]
        if build.phase.is_final:
            return []
        match event:
            case on.Received():
                return self._received(build, now)
            case on.Resolving():
                return self._enter(build, Phase.RESOLVING, now)
            case on.Prepared():
                return self._prepared(build, event.identity, now)
            case on.Pushing():
                return self._enter(build, Phase.PUSHING, now)
            case on.Succeeded():
                build.result = event.result
                return self._end(build, Phase.DONE, now)
            case on.WorkFailed():
                return self._fail(build, build.stopping or event.failure, now)
            case on.CancelRequested():
                return self._stop(build, _CANCELLED, now)
            case _:
                assert_never(event)

    def restore(self, build: Build) -> None:
        """Know a build again that ended before a restart."""
        self._builds[build.id] = build

    def alias(self, name: BuildId, build: BuildId) -> None:
        """Know a name again under which a build was joined."""
        self._aliases[name] = build

    def names_of(self, build: BuildId) -> list[BuildId]:
        """The names under which it was joined."""
        return [name for name, other in self._aliases.items() if other == build]

    # --- decisions -------------------------------------------------------------------------

    def _requested(self, event: on.Requested, now: float) -> list[do.Effect]:
        open_builds = [b for b in self._builds.values() if not b.phase.is_final]
        mine = sum(1 for b in open_builds if b.caller == event.caller)
        for count, limit, whose in (
            (mine, self.limits.waiting_per_caller, "of yours "),
            (len(open_builds), self.limits.waiting, ""),
        ):
            if count >= limit:
                failure = Failure(
                    Reason.LIMIT,
                    f"{count} builds {whose}are under way or wait; no more than {limit} may",
                    where="the builder's queue",
                    remedy="Wait until some have ended.",
                )
                return [do.Rejected(event.build, failure)]
        build = Build(event.build, event.caller, event.source, Phase.RECEIVING, now, now)
        build.callers = frozenset({event.caller})
        build.alone_since = now
        self._builds[build.id] = build
        if event.source is on.Source.GIT:
            build.phase = Phase.QUEUED
            self._lanes.preparing.add(build.caller, build.id)
        return [do.Changed(build.id), *self._start(now)]

    def _recovered(self, event: on.Recovered, now: float) -> list[do.Effect]:
        build = Build(event.build, event.caller, event.source, Phase.QUEUED, event.submitted, now)
        build.callers = event.callers
        build.identity, build.attempts = event.identity, event.attempts
        self._builds[build.id] = build
        if event.attempts >= self.limits.attempts:
            failure = Failure(
                Reason.RESTARTED,
                f"the builder ended {event.attempts} times while it worked on this build",
                where="the builder",
                remedy="Try once more; if the builder ends again, its log says why.",
            )
            return self._fail(build, failure, now)
        if event.identity is not None:
            same = self._same(event.identity, build.id)
            if same is not None:
                return self._join(build, same)
            self._lanes.building.add(build.caller, build.id)
        elif event.source is on.Source.GIT:
            self._lanes.preparing.add(build.caller, build.id)
        else:
            failure = Failure(
                Reason.RESTARTED,
                "the builder was restarted before the archive was there and checked",
                where="the builder",
                remedy="Send it again.",
            )
            return self._fail(build, failure, now)
        return [do.Changed(build.id), *self._start(now)]

    def _received(self, build: Build, now: float) -> list[do.Effect]:
        if build.phase is not Phase.RECEIVING or build.stopping is not None:
            return []
        build.phase, build.since = Phase.QUEUED, now
        self._lanes.preparing.add(build.caller, build.id)
        return [do.Changed(build.id), *self._start(now)]

    def _prepared(self, build: Build, identity: Identity, now: float) -> list[do.Effect]:
        build.working = False
        if build.stopping is not None:
            return self._fail(build, build.stopping, now)
        same = self._same(identity, build.id)
        if same is not None:
            return [*self._join(build, same), *self._start(now)]
        build.identity = identity
        build.phase, build.since = Phase.QUEUED, now
        self._lanes.building.add(build.caller, build.id)
        return [do.Changed(build.id), *self._start(now)]

    def _same(self, identity: Identity, but: BuildId) -> Build | None:
        for each in self._builds.values():
            if (
                each.identity == identity
                and each.id != but
                and not each.phase.is_final
                and each.stopping is None
            ):
                return each
        return None

    def _join(self, build: Build, other: Build) -> list[do.Effect]:
        other.callers |= build.callers
        other.waiting += build.waiting
        if build.waiting:
            other.alone_since = None
        del self._builds[build.id]
        self._aliases[build.id] = other.id
        for name in self.names_of(build.id):
            self._aliases[name] = other.id
        return [do.Joined(build.id, other.id), do.Changed(other.id)]

    def _enter(self, build: Build, phase: Phase, now: float) -> list[do.Effect]:
        build.phase, build.since = phase, now
        return [do.Changed(build.id)]

    def _stop(self, build: Build, failure: Failure, now: float) -> list[do.Effect]:
        if build.stopping is not None:
            return []
        if not build.working:
            self._lanes.preparing.remove(build.id)
            self._lanes.building.remove(build.id)
            # A sender is told by the end of its build.
            return self._fail(build, failure, now)
        build.stopping = failure
        return [do.StopWork(build.id), do.Changed(build.id)]

    def _fail(self, build: Build, failure: Failure, now: float) -> list[do.Effect]:
        build.failure = failure
        cancelled = failure.reason is Reason.CANCELLED
        return self._end(build, Phase.CANCELLED if cancelled else Phase.FAILED, now)

    def _end(self, build: Build, phase: Phase, now: float) -> list[do.Effect]:
        self._lanes.preparing.remove(build.id)
        self._lanes.building.remove(build.id)
        worked = build.phase in (Phase.BUILDING, Phase.PUSHING)
        build.phase, build.since, build.finished = phase, now, now
        build.working, build.stopping = False, None
        found: list[do.Effect] = [do.Changed(build.id), do.Ended(build.id)]
        found += self._start(now)
        if worked and not self._is_building():
            found.append(do.Collect())
        return found

    def _is_building(self) -> bool:
        return any(
            b.working and b.phase in (Phase.BUILDING, Phase.PUSHING) for b in self._builds.values()
        )

    def _start(self, now: float) -> list[do.Effect]:
        """Fill free slots."""
        found: list[do.Effect] = []
        working = [b for b in self._builds.values() if b.working]
        preparing = sum(1 for b in working if b.phase in (Phase.FETCHING, Phase.RESOLVING))
        building = [b for b in working if b.phase in (Phase.BUILDING, Phase.PUSHING)]
        while preparing < self.limits.preparing:
            name = self._lanes.preparing.take()
            if name is None:
                break
            build = self._builds[name]
            git = build.source is on.Source.GIT
            build.phase = Phase.FETCHING if git else Phase.RESOLVING
            build.since, build.working = now, True
            preparing += 1
            found += [do.Changed(name), do.StartPreparing(name)]
        busy = {b.identity.content for b in building if b.identity is not None}

        def may(name: BuildId) -> bool:
            identity = self._builds[name].identity
            return identity is not None and identity.content not in busy

        count = len(building)
        while count < self.limits.building:
            name = self._lanes.building.take(may)
            if name is None:
                break
            build = self._builds[name]
            assert build.identity is not None
            build.phase, build.since, build.working = Phase.BUILDING, now, True
            build.attempts += 1
            busy.add(build.identity.content)
            count += 1
            found += [
                do.Changed(name),
                do.StartBuilding(name, build.identity, build.attempts),
            ]
        return found

    def _tick(self, now: float) -> list[do.Effect]:
        found: list[do.Effect] = []
        allowed = {
            Phase.RECEIVING: self.limits.receive_s,
            Phase.FETCHING: self.limits.prepare_s,
            Phase.RESOLVING: self.limits.prepare_s,
            Phase.BUILDING: self.limits.build_s,
            Phase.PUSHING: self.limits.build_s,
        }
        for build in list(self._builds.values()):
            if build.phase.is_final or build.stopping is not None:
                continue
            longest = allowed.get(build.phase)
            alone = build.alone_since
            if longest is not None and now - build.since > longest:
                failure = Failure(
                    Reason.TIMEOUT,
                    f"{build.phase} took longer than {longest:g} s",
                    where="the builder",
                    remedy="Make the zoo or its requirements smaller, or have the limit raised.",
                )
                found += self._stop(build, failure, now)
            elif alone is not None and now - alone > self.limits.abandon_s:
                failure = Failure(
                    Reason.CANCELLED,
                    f"nobody has waited for this build for {self.limits.abandon_s:g} s",
                    where="the builder",
                    remedy="Stay attached, or attach again in time.",
                )
                found += self._stop(build, failure, now)
        return found + self._forget(now)

    def _forget(self, now: float) -> list[do.Effect]:
        ended = [b for b in self.newest() if b.phase.is_final and not b.waiting]
        found: list[do.Effect] = []
        for number, build in enumerate(ended):
            since = build.finished or build.submitted
            if number >= self.limits.keep or now - since > self.limits.keep_s:
                del self._builds[build.id]
                for name in self.names_of(build.id):
                    del self._aliases[name]
                found.append(do.Forget(build.id))
        return found
