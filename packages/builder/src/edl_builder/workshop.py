"""Where the core meets threads: one lock around the state machine, effects carried out after it.

Owns all builds of a service: their records, logs and work. Servicers ask it, and follow builds.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from edl_builder.adapters import archives, records
from edl_builder.adapters.logbook import LogBook
from edl_builder.adapters.records import Records
from edl_builder.adapters.stopping import StopSignal
from edl_builder.core import effects as do
from edl_builder.core import events as on
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.builds import Build, Builds, Limits
from edl_builder.core.names import (
    BuildId,
    Caller,
    Identity,
    Phase,
    Reason,
    Refused,
)
from edl_builder.core.orders import Order, Tenant
from edl_builder.core.ports import Engine
from edl_builder.core.views import LogLine, View, rfc3339, view_of
from edl_builder.gate import Gate
from edl_builder.metrics import Metrics
from edl_builder.work import ARCHIVE, Work, failure_of

log = logging.getLogger(__name__)

_TICK_S = 1.0
_COLLECT_TRIES = 60
"""Once per tick: an engine needs a moment to end what was stopped."""

_LOOK_S = 1.0
"""How long a watcher that has left may go unnoticed."""


class Clock:
    """Seconds since 1970 that never go back while the service runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


class Workshop:
    """All builds of a service.

    Args:
        limits: of the queue.
        archive: of archives.
        log_nbytes: of one build's log.
        keep_images: how many the engine keeps.
        store: the state folder.
        work: what is done for a build.
        engine: to be cleaned.
        metrics: what is counted.
        redact: applied to all that is said.
    """

    def __init__(
        self,
        limits: Limits,
        archive: ArchiveLimits,
        log_nbytes: int,
        keep_images: int,
        store: Records,
        work: Work,
        engine: Engine,
        metrics: Metrics,
        redact: Callable[[str], str],
    ) -> None:
        self._archive = archive
        self._log_nbytes = log_nbytes
        self._keep_images = keep_images
        self._store = store
        self._work = work
        self._engine = engine
        self._metrics = metrics
        self._redact = redact
        self._now = Clock()
        self._news = threading.Condition()
        self._builds = Builds(limits)
        self._orders: dict[BuildId, Order] = {}
        self._logs: dict[BuildId, LogBook] = {}
        self._stops: dict[BuildId, StopSignal] = {}
        self._gate = Gate()
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(
            limits.preparing + limits.building + 1, thread_name_prefix="work"
        )
        metrics.watch(self._phases)
        self._collect()
        self._recover()
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()

    # --- what is asked ---------------------------------------------------------------------

    def request(self, tenant: Tenant, order: Order) -> BuildId:
        """Take an order. Raises: Refused: the queue is full."""
        build = BuildId(secrets.token_hex(8))
        source = on.Source.ARCHIVE if order.git is None else on.Source.GIT
        self._store.create(build)
        with self._news:
            self._orders[build] = order
        self._tell(on.Requested(build, tenant.name, source))
        return build

    def receive(self, build: BuildId, chunks: Iterable[bytes]) -> None:
        """Take the archive of a build; a failure is the build's, not raised."""
        order = self._orders[build]

        def counted() -> Iterator[bytes]:
            for chunk in chunks:
                view = self.view(build)
                if view.phase.is_final:
                    return
                self._metrics.received.inc(len(chunk))
                yield chunk

        try:
            path = self._store.folder(build) / ARCHIVE
            archives.receive(
                counted(), path, order.archive_nbytes, order.archive_sha256, self._archive
            )
        except Exception as error:
            if not self.view(build).phase.is_final:
                self._tell(on.WorkFailed(build, failure_of(error, Phase.RECEIVING)))
            return
        self._tell(on.Received(build))

    @contextlib.contextmanager
    def waiting(self, build: BuildId) -> Iterator[None]:
        """Count as one who waits for a build."""
        self._tell(on.Attached(build))
        try:
            yield
        finally:
            self._tell(on.Detached(build))

    def cancel(self, tenant: Tenant, build: BuildId) -> View:
        """End a build, for all who wait for it. Raises: Refused: NOT_FOUND."""
        self.get(tenant, build)
        self._tell(on.CancelRequested(build))
        return self.get(tenant, build)

    def get(self, tenant: Tenant, build: BuildId) -> View:
        """A build. Raises: Refused: NOT_FOUND, also for one of another tenant."""
        with self._news:
            found = self._builds.get(build)
            if found is None or not (tenant.sees_all or tenant.name in found.callers):
                raise Refused(
                    Reason.NOT_FOUND,
                    f"there is no build {build[:40]!r}",
                    where="build id",
                    remedy="See which there are with List; old ones are forgotten.",
                )
            return self._view(found)

    def view(self, build: BuildId) -> View:
        """A build that is known to exist. Raises: Refused: NOT_FOUND, if it was forgotten."""
        return self.get(_EVERYTHING, build)

    def newest(self, tenant: Tenant, most: int) -> list[View]:
        """The newest builds of a tenant."""
        with self._news:
            mine = (b for b in self._builds.newest() if tenant.sees_all or tenant.name in b.callers)
            return [self._view(build) for build, _ in zip(mine, range(most), strict=False)]

    def follow(
        self, build: BuildId, after: int, active: Callable[[], bool]
    ) -> Iterator[View | LogLine]:
        """The build at each change and its lines, until it has ended and all is said.

        A build that turns out to be the same as another goes on as that one, from its first line.
        """
        shown: View | None = None
        current = build
        while active():
            with self._news:
                found = self._builds.get(build)
                if found is None:
                    return
                view = self._view(found)
                if view.id != current:
                    current, after = view.id, 0
                lines = self._log(view.id).after(after)
                if not lines and view == shown:
                    self._news.wait(_LOOK_S)
                    continue
            if view != shown and not view.phase.is_final:
                yield view
            shown = view
            for line in lines:
                yield line
                after = line.number
            if view.phase.is_final:
                yield view
                return

    def wake(self) -> None:
        """Have followers look whether their callers are still there."""
        with self._news:
            self._news.notify_all()

    def close(self, longest_s: float) -> None:
        """Stop all work; what is under way is taken up by the next service."""
        with self._news:
            self._closing.set()
            stops = list(self._stops.values())
            for build in self._builds.newest():
                if build.working and build.attempts and not build.phase.is_final:
                    build.attempts -= 1  # not the build's fault
                    self._save(build)
        for stop in stops:
            stop.set()
        closer = threading.Thread(target=self._threads.shutdown, daemon=True)
        closer.start()
        closer.join(longest_s)
        self._store.close()

    # --- facts in, effects out -------------------------------------------------------------

    def _tell(self, event: on.Event) -> None:
        with self._news:
            if self._closing.is_set():
                return
            effects = self._builds.handle(event, self._now())
            # Written down in the order of the decisions, before anybody sees them.
            for effect in effects:
                self._note(effect)
            self._news.notify_all()
        for effect in effects:
            self._act(effect)

    def _note(self, effect: do.Effect) -> None:
        match effect:
            case do.Changed(name):
                if (build := self._builds.get(name)) is not None:
                    if build.phase is Phase.DONE and build.result and not build.result.seconds:
                        seconds = max(0.001, round(self._now() - build.submitted, 3))
                        build.result = replace(build.result, seconds=seconds)
                    self._save(build)
            case do.Joined(name, other):
                self._log(other).add(self._view_phase(other), f"joined by {name}")
                self._metrics.builds.labels("joined").inc()
                self._store.remove(name)
                self._orders.pop(name, None)
                self._logs.pop(name, None)
            case do.StartPreparing(name) | do.StartBuilding(name):
                self._stops[name] = StopSignal()
            case do.Ended(name):
                self._count(name)
                self._store.clean(name)
                self._stops.pop(name, None)
            case do.Forget(name):
                self._store.remove(name)
                self._orders.pop(name, None)
                self._logs.pop(name, None)
            case do.Rejected(name):
                self._store.remove(name)
                self._orders.pop(name, None)

    def _act(self, effect: do.Effect) -> None:
        match effect:
            case do.StartPreparing(name):
                self._threads.submit(self._prepare, name, self._stops[name])
            case do.StartBuilding(name, identity):
                self._threads.submit(self._build, name, identity, self._stops[name])
            case do.StopWork(name):
                if (stop := self._stops.get(name)) is not None:
                    stop.set()
            case do.Collect():
                self._threads.submit(self._collect)
            case do.Rejected(_, failure):
                raise Refused(
                    failure.reason, failure.what, where=failure.where, remedy=failure.remedy
                )

    def _prepare(self, name: BuildId, stop: StopSignal) -> None:
        folder = self._store.folder(name)
        order = self._orders[name]

        def work() -> on.Event:
            return self._work.prepare(name, order, folder, self._tell, self._say(name), stop)

        self._do(name, work, stop)

    def _build(self, name: BuildId, identity: Identity, stop: StopSignal) -> None:
        folder = self._store.folder(name)
        order = self._orders[name]

        def work() -> on.Event:
            with self._gate.building():
                return self._work.build(
                    name, order, identity, folder, self._tell, self._say(name), stop
                )

        self._do(name, work, stop)

    def _do(self, name: BuildId, work: Callable[[], on.Event], stop: StopSignal) -> None:
        try:
            stop.check()
            event = work()
        except Exception as error:
            found = failure_of(error, self._view_phase(name))
            if found.reason is Reason.DEFECT:
                self._metrics.defects.inc()
            failure = replace(
                found,
                what=self._redact(found.what),
                where=self._redact(found.where),
                detail=self._redact(found.detail),
            )
            if found.reason is not Reason.CANCELLED:
                self._say(name)(f"failed: {failure.what}")
            event = on.WorkFailed(name, failure)
        self._tell(event)

    def _collect(self, tries: int = _COLLECT_TRIES) -> None:
        self._collect_tries = 0
        try:
            clean = self._gate.collect(lambda: self._engine.collect(self._keep_images))
            self._metrics.up.set(1)
            if not clean:
                self._collect_tries = tries - 1
        except Refused as error:
            self._metrics.up.set(0)
            log.warning("the engine could not be cleaned: %s", error.failure.what)

    def _tick(self) -> None:
        while not self._closing.wait(_TICK_S):
            self._tell(on.Tick())
            if self._collect_tries:
                self._collect(self._collect_tries)

    # --- on disk ---------------------------------------------------------------------------

    def _recover(self) -> None:
        for record in self._store.load():
            with self._news:
                self._orders[record.id] = record.order
                for name in record.names:
                    self._builds.alias(name, record.id)
            if record.phase.is_final:
                self._store.clean(record.id)
                self._builds.restore(records.build_of(record))
                continue
            ready = records.read_ready(self._store.folder(record.id)) is not None
            if not ready:
                self._store.clean(record.id)
            self._log(record.id).add(record.phase, "the builder was restarted")
            self._metrics.restarts.inc()
            source = on.Source.GIT if record.order.git else on.Source.ARCHIVE
            self._tell(
                on.Recovered(
                    record.id,
                    record.caller,
                    frozenset(record.callers),
                    source,
                    record.submitted_at,
                    record.identity if ready else None,
                    record.attempts,
                )
            )

    def _save(self, build: Build) -> None:
        names = self._builds.names_of(build.id)
        self._store.save(records.record_of(build, self._orders[build.id], names))

    def _log(self, build: BuildId) -> LogBook:
        if build not in self._logs:
            path = self._store.folder(build) / "log.jsonl"
            self._logs[build] = LogBook(
                path, self._log_nbytes, lambda: rfc3339(self._now()), self._redact
            )
        return self._logs[build]

    def _say(self, build: BuildId) -> Callable[[str], None]:
        def say(text: str) -> None:
            with self._news:
                found = self._builds.get(build)
                if found is not None and not found.phase.is_final:
                    self._log(found.id).add(found.phase, text)
                    self._news.notify_all()

        return say

    # --- looking ---------------------------------------------------------------------------

    def _view(self, build: Build) -> View:
        repository = self._orders[build.id].repository.repository
        return view_of(build, repository, self._builds.position(build.id))

    def _view_phase(self, name: BuildId) -> Phase:
        build = self._builds.get(name)
        return build.phase if build else Phase.FAILED

    def _phases(self) -> list[Phase]:
        with self._news:
            return [build.phase for build in self._builds.newest()]

    def _count(self, name: BuildId) -> None:
        build = self._builds.get(name)
        if build is None:
            return
        if build.result is not None:
            result = "reused" if build.result.reused else "built"
            self._metrics.duration.labels(result).observe(build.result.seconds)
            cached = build.result.cached_layers
            self._metrics.cached_layers.labels("hit").inc(cached)
            self._metrics.cached_layers.labels("miss").inc(build.result.layers - cached)
        else:
            result = str(build.phase)
            if build.failure is not None:
                self._metrics.failures.labels(str(build.failure.reason)).inc()
        self._metrics.builds.labels(result).inc()


_EVERYTHING = Tenant(Caller("the builder"), sees_all=True)
