"""All builds of one service: events in, effects out.

    archive:  RECEIVING ─┐
    git:      QUEUED ──► FETCHING ─► RESOLVING ─► QUEUED ─► BUILDING ─► PUSHING ─► DONE
                                         └ found in the registry ───────────────►

Every phase before DONE may end in FAILED or CANCELLED. A build whose work is being
cancelled keeps its place until the work has stopped, so that the limits always hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import assert_never

from edl_builder.core import effects as fx
from edl_builder.core import events as ev
from edl_builder.core.build import Build, BuildLimits, Phase, SourceKind
from edl_builder.core.failure import Failure, Reason
from edl_builder.core.fair_queue import FairQueue
from edl_builder.core.identifiers import BuildId, BuildIdentity


@dataclass(slots=True)
class _Queues:
    preparing: FairQueue = field(default_factory=FairQueue)
    building: FairQueue = field(default_factory=FairQueue)


_CANCELLED = Failure(Reason.CANCELLED, "the build was cancelled")


class BuildStateMachine:
    """The state machine of all builds. Not thread-safe: its owner holds a lock."""

    def __init__(self, limits: BuildLimits) -> None:
        self.limits = limits
        self._builds: dict[BuildId, Build] = {}
        self._aliases: dict[BuildId, BuildId] = {}
        self._queues = _Queues()

    # --- queries ---------------------------------------------------------------------------

    def get(self, build: BuildId) -> Build | None:
        """Return the build of an id, also by the id of one that joined it."""
        return self._builds.get(self._aliases.get(build, build))

    def newest(self) -> list[Build]:
        """Return all builds, newest first."""
        return sorted(self._builds.values(), key=lambda b: (b.submitted, b.id), reverse=True)

    def position(self, build: BuildId) -> int:
        """Return the position of a build in the queue, from 1; 0 if it does not wait."""
        for queue in (self._queues.building, self._queues.preparing):
            for number, each in enumerate(queue.order(), start=1):
                if each == build:
                    return number
        return 0

    # --- events -----------------------------------------------------------------------------

    def handle(  # noqa: C901, PLR0912  (one case for each event)
        self, event: ev.Event, now: float
    ) -> list[fx.Effect]:
        """Handle an event at ``now``, in seconds that never decrease; returns the effects."""
        if isinstance(event, ev.Tick):
            return self._tick(now)
        if isinstance(event, ev.BuildRequested):
            return self._on_requested(event, now)
        if isinstance(event, ev.BuildRecovered):
            return self._on_recovered(event, now)
        if isinstance(event, ev.ServiceStopped):
            return self._on_stopped()
        build = self.get(event.build)
        if build is None:
            return []
        match event:
            case ev.Subscribed():
                build.subscribers += 1
                build.unsubscribed_since = None
                return [fx.BuildChanged(build.id)]
            case ev.Unsubscribed():
                build.subscribers -= 1
                if not build.subscribers:
                    build.unsubscribed_since = now
                return [fx.BuildChanged(build.id)]
        if build.phase.is_final:
            return []
        match event:
            case ev.ArchiveReceived():
                return self._on_received(build, now)
            case ev.ResolvingStarted():
                return self._enter(build, Phase.RESOLVING, now)
            case ev.ContextPrepared():
                return self._on_prepared(build, event.identity, now)
            case ev.PushStarted():
                return self._enter(build, Phase.PUSHING, now)
            case ev.BuildSucceeded():
                seconds = max(0.001, round(now - build.submitted, 3))
                build.result = replace(event.result, seconds=seconds)
                return self._end(build, Phase.DONE, now)
            case ev.WorkFailed():
                return self._fail(build, build.cancel_failure or event.failure, now)
            case ev.CancelRequested():
                return self._stop(build, _CANCELLED, now)
            case _:
                assert_never(event)

    def restore(self, build: Build) -> None:
        """Restore a build that ended before a restart."""
        self._builds[build.id] = build

    def alias(self, name: BuildId, build: BuildId) -> None:
        """Restore an id that became an alias of a build."""
        self._aliases[name] = build

    def names_of(self, build: BuildId) -> list[BuildId]:
        """Return the ids that are aliases of a build."""
        return [name for name, other in self._aliases.items() if other == build]

    # --- decisions -------------------------------------------------------------------------

    def _on_requested(self, event: ev.BuildRequested, now: float) -> list[fx.Effect]:
        open_builds = [b for b in self._builds.values() if not b.phase.is_final]
        mine = sum(1 for b in open_builds if b.caller == event.caller)
        for count, limit, whose in (
            (mine, self.limits.waiting_per_caller, "of yours "),
            (len(open_builds), self.limits.waiting, ""),
        ):
            if count >= limit:
                failure = Failure(
                    Reason.LIMIT,
                    f"{count} builds {whose}have not ended; the limit is {limit}",
                    where="the builder's queue",
                    remedy="Wait until some have ended.",
                )
                return [fx.RequestRejected(event.build, failure)]
        build = Build(event.build, event.caller, event.source, Phase.RECEIVING, now, now)
        build.callers, build.at_once = frozenset({event.caller}), event.at_once
        build.unsubscribed_since = now
        self._builds[build.id] = build
        if event.source is SourceKind.GIT:
            build.phase = Phase.QUEUED
            self._queues.preparing.add(build.caller, build.id)
        return [fx.BuildChanged(build.id), *self._start(now)]

    def _on_recovered(self, event: ev.BuildRecovered, now: float) -> list[fx.Effect]:
        build = Build(event.build, event.caller, event.source, Phase.QUEUED, event.submitted, now)
        build.callers, build.at_once = event.callers, event.at_once
        build.identity, build.attempts = event.identity, event.attempts
        self._builds[build.id] = build
        if event.attempts >= self.limits.attempts:
            failure = Failure(
                Reason.RESTARTED,
                f"the builder ended {event.attempts} times during this build",
                where="the builder",
                remedy="Try again; if the builder ends again, see its log.",
            )
            return self._fail(build, failure, now)
        if event.identity is not None:
            same = self._same(event.identity, build.id)
            if same is not None:
                return self._join(build, same)
            self._queues.building.add(build.caller, build.id)
        elif event.source is SourceKind.GIT:
            self._queues.preparing.add(build.caller, build.id)
        else:
            failure = Failure(
                Reason.RESTARTED,
                "the builder was restarted before the archive was complete",
                where="the builder",
                remedy="Send it again.",
            )
            return self._fail(build, failure, now)
        return [fx.BuildChanged(build.id), *self._start(now)]

    def _on_received(self, build: Build, now: float) -> list[fx.Effect]:
        if build.phase is not Phase.RECEIVING or build.cancel_failure is not None:
            return []
        build.phase, build.since = Phase.QUEUED, now
        self._queues.preparing.add(build.caller, build.id)
        return [fx.BuildChanged(build.id), *self._start(now)]

    def _on_prepared(self, build: Build, identity: BuildIdentity, now: float) -> list[fx.Effect]:
        build.is_working = False
        if build.cancel_failure is not None:
            return self._fail(build, build.cancel_failure, now)
        same = self._same(identity, build.id)
        if same is not None:
            return [*self._join(build, same), *self._start(now)]
        build.identity = identity
        build.phase, build.since = Phase.QUEUED, now
        self._queues.building.add(build.caller, build.id)
        return [fx.BuildChanged(build.id), *self._start(now)]

    def _same(self, identity: BuildIdentity, but: BuildId) -> Build | None:
        for each in self._builds.values():
            if (
                each.identity == identity
                and each.id != but
                and not each.phase.is_final
                and each.cancel_failure is None
            ):
                return each
        return None

    def _join(self, build: Build, other: Build) -> list[fx.Effect]:
        other.callers |= build.callers
        other.subscribers += build.subscribers
        if build.subscribers:
            other.unsubscribed_since = None
        del self._builds[build.id]
        self._aliases[build.id] = other.id
        for name in self.names_of(build.id):
            self._aliases[name] = other.id
        return [fx.BuildMerged(build.id, other.id), fx.BuildChanged(other.id)]

    def _enter(self, build: Build, phase: Phase, now: float) -> list[fx.Effect]:
        build.phase, build.since = phase, now
        return [fx.BuildChanged(build.id)]

    def _stop(self, build: Build, failure: Failure, now: float) -> list[fx.Effect]:
        if build.cancel_failure is not None:
            return []
        if not build.is_working:
            self._queues.preparing.remove(build.id)
            self._queues.building.remove(build.id)
            # An upload ends with its build.
            return self._fail(build, failure, now)
        build.cancel_failure = failure
        return [fx.CancelWork(build.id), fx.BuildChanged(build.id)]

    def _fail(self, build: Build, failure: Failure, now: float) -> list[fx.Effect]:
        build.failure = failure
        cancelled = failure.reason is Reason.CANCELLED
        return self._end(build, Phase.CANCELLED if cancelled else Phase.FAILED, now)

    def _end(self, build: Build, phase: Phase, now: float) -> list[fx.Effect]:
        self._queues.preparing.remove(build.id)
        self._queues.building.remove(build.id)
        worked = build.phase in (Phase.BUILDING, Phase.PUSHING)
        build.phase, build.since, build.finished = phase, now, now
        build.is_working, build.cancel_failure = False, None
        found: list[fx.Effect] = [fx.BuildChanged(build.id), fx.BuildFinished(build.id)]
        found += self._start(now)
        if worked and not self._building():
            found.append(fx.PruneImages())
        return found

    def _building(self) -> list[Build]:
        """Return the builds that the engine works on."""
        return [
            b
            for b in self._builds.values()
            if b.is_working and b.phase in (Phase.BUILDING, Phase.PUSHING)
        ]

    def _on_stopped(self) -> list[fx.Effect]:
        building = self._building()
        for build in building:
            build.attempts -= 1  # the end of the service is no failed attempt
        return [fx.BuildChanged(build.id) for build in building]

    def _start(self, now: float) -> list[fx.Effect]:
        """Start as many builds as the limits allow."""
        found: list[fx.Effect] = []
        is_working = [b for b in self._builds.values() if b.is_working]
        preparing = sum(1 for b in is_working if b.phase in (Phase.FETCHING, Phase.RESOLVING))
        building = self._building()
        while preparing < self.limits.preparing:
            name = self._queues.preparing.take()
            if name is None:
                break
            build = self._builds[name]
            git = build.source is SourceKind.GIT
            build.phase = Phase.FETCHING if git else Phase.RESOLVING
            build.since, build.is_working = now, True
            preparing += 1
            found += [fx.BuildChanged(name), fx.StartPreparing(name)]
        busy = {b.identity.content for b in building if b.identity is not None}
        mine = Counter(b.caller for b in building)

        def may(name: BuildId) -> bool:
            build = self._builds[name]
            identity = build.identity
            if build.at_once and mine[build.caller] >= build.at_once:
                return False
            return identity is not None and identity.content not in busy

        count = len(building)
        while count < self.limits.building:
            name = self._queues.building.take(may)
            if name is None:
                break
            build = self._builds[name]
            assert build.identity is not None
            build.phase, build.since, build.is_working = Phase.BUILDING, now, True
            build.attempts += 1
            busy.add(build.identity.content)
            mine[build.caller] += 1
            count += 1
            found += [fx.BuildChanged(name), fx.StartBuilding(name, build.identity)]
        return found

    def _tick(self, now: float) -> list[fx.Effect]:
        found: list[fx.Effect] = []
        allowed = {
            Phase.RECEIVING: self.limits.receive_s,
            Phase.FETCHING: self.limits.prepare_s,
            Phase.RESOLVING: self.limits.prepare_s,
            Phase.BUILDING: self.limits.build_s,
            Phase.PUSHING: self.limits.build_s,
        }
        for build in list(self._builds.values()):
            if build.phase.is_final or build.cancel_failure is not None:
                continue
            longest = allowed.get(build.phase)
            alone = build.unsubscribed_since
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
                    f"no call has followed this build for {self.limits.abandon_s:g} s",
                    where="the builder",
                    remedy="Keep the call open, or follow the build again in time (Watch).",
                )
                found += self._stop(build, failure, now)
        return found + self._forget(now)

    def _forget(self, now: float) -> list[fx.Effect]:
        ended = [b for b in self.newest() if b.phase.is_final and not b.subscribers]
        found: list[fx.Effect] = []
        for number, build in enumerate(ended):
            since = build.finished or build.submitted
            if number >= self.limits.keep or now - since > self.limits.keep_s:
                del self._builds[build.id]
                for name in self.names_of(build.id):
                    del self._aliases[name]
                found.append(fx.ForgetBuild(build.id))
        return found
