"""The build service: one lock around the state machine; effects are executed after it.

Owns all builds: their records, logs and threads. Servicers submit, query and follow builds.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator

from edl_builder.adapters import archives, build_store
from edl_builder.adapters.build_log import BuildLogs, WrittenLines
from edl_builder.adapters.build_store import BuildStore
from edl_builder.adapters.clock import Clock
from edl_builder.adapters.usage_store import UsageStore
from edl_builder.control.build_steps import BuildSteps, failure_of
from edl_builder.control.build_work import BuildWork, WorkReports
from edl_builder.control.engine_lock import EngineLock, ImagePruner
from edl_builder.core import effects as fx
from edl_builder.core import events as ev
from edl_builder.core.build import Build, Phase, SourceKind
from edl_builder.core.build_request import BuildRequest, Tenant
from edl_builder.core.build_status import BuildStatus, LogLine, status_of
from edl_builder.core.failure import BuilderError, Failure, Reason
from edl_builder.core.identifiers import BuildId, Caller
from edl_builder.core.limits import ServiceLimits
from edl_builder.core.ports import Engine, WriteLine
from edl_builder.core.state_machine import BuildStateMachine
from edl_builder.metrics import Metrics
from edl_runtime.timestamps import rfc3339

log = logging.getLogger(__name__)

_TICK_S = 1.0
_POLL_S = 1.0
"""How often the service looks for subscribers that have left."""


class BuildService:
    """All builds of a service.

    Args:
        limits: of queue, archives, logs and images.
        store: the state folder.
        steps: the blocking work of a build.
        engine: whose images are pruned.
        metrics: counters of the service.
        redact: removes secrets from log lines and failures.
        usage: counts what tenants use.
        on_end: called with each build that has ended.
    """

    def __init__(
        self,
        limits: ServiceLimits,
        store: BuildStore,
        steps: BuildSteps,
        engine: Engine,
        metrics: Metrics,
        redact: Callable[[str], str],
        usage: UsageStore,
        on_end: Callable[[Build], None],
    ) -> None:
        self._limits = limits
        self._store = store
        self._metrics = metrics
        self._usage = usage
        self._on_end = on_end
        self._now = Clock()
        self._changed = threading.Condition()
        self._builds = BuildStateMachine(limits.builds)
        self._requests: dict[BuildId, BuildRequest] = {}
        self._unsaved: set[BuildId] = set()
        self._logs = BuildLogs(
            lambda build: store.folder(build) / build_store.LOG,
            limits.log_nbytes,
            lambda: rfc3339(self._now()),
            redact,
        )
        engine_lock = EngineLock()
        self._pruner = ImagePruner(engine, limits.keep_images, engine_lock)
        self._closing = threading.Event()
        self._work = BuildWork(
            steps,
            WorkReports(self._handle, self._line_writer, self._view_phase, redact),
            usage,
            engine_lock,
            limits.builds.preparing + limits.builds.building + 1,
        )
        metrics.watch(self._phases)

    def start(self) -> None:
        """Continue the builds of earlier services, and let time pass for all.

        Raises:
            OSError: a build cannot be read or written.
        """
        self._pruner.prune()
        self._recover()
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()

    # --- calls ---------------------------------------------------------------------

    def submit(self, tenant: Tenant, request: BuildRequest) -> BuildId:
        """Start a build.

        Raises:
            BuilderError: LIMIT, if the queue or the disk is full, or a quota used up.
        """
        self._usage.begin(tenant.name, tenant.quota)
        build = BuildId(secrets.token_hex(8))
        source = SourceKind.ARCHIVE if request.git is None else SourceKind.GIT
        try:
            self._store.create(build)
            with self._changed:
                self._requests[build] = request
                self._logs.open(build)
        except OSError as error:
            with self._changed:
                self._forget(build)
            failure = failure_of(error, Phase.RECEIVING)
            if failure.reason is Reason.INTERNAL:
                raise
            raise _as_error(failure) from error
        self._handle(ev.BuildRequested(build, tenant.name, source, request.at_once))
        return build

    def receive_archive(self, tenant: Tenant, build: BuildId, chunks: Iterable[bytes]) -> None:
        """Receive the archive of a build; a failure fails the build and is not raised."""
        request = self._requests[build]

        def count_bytes() -> Iterator[bytes]:
            for chunk in chunks:
                view = self.view(build)
                if view.phase.is_final:
                    return
                self._metrics.received.inc(len(chunk))
                self._usage.add_bytes(tenant.name, tenant.quota, len(chunk))
                yield chunk

        try:
            path = self._store.folder(build) / build_store.ARCHIVE
            nbytes, sha256 = request.archive_nbytes, request.archive_sha256
            archives.receive(count_bytes(), path, nbytes, sha256, self._limits.archive)
        except Exception as error:
            if not self.view(build).phase.is_final:
                self._handle(ev.WorkFailed(build, failure_of(error, Phase.RECEIVING)))
            return
        self._handle(ev.ArchiveReceived(build))

    @contextlib.contextmanager
    def subscription(self, build: BuildId) -> Iterator[None]:
        """Count the caller as a subscriber of a build."""
        self._handle(ev.Subscribed(build))
        try:
            yield
        finally:
            self._handle(ev.Unsubscribed(build))

    def cancel(self, tenant: Tenant, build: BuildId) -> BuildStatus:
        """Cancel a build for all its subscribers. Raises: BuilderError: NOT_FOUND."""
        self.get(tenant, build)
        self._handle(ev.CancelRequested(build))
        return self.get(tenant, build)

    def get(self, tenant: Tenant, build: BuildId) -> BuildStatus:
        """Return a build. Raises: BuilderError: NOT_FOUND, also for one of another tenant."""
        with self._changed:
            found = self._builds.get(build)
            if found is None or not (tenant.sees_all or tenant.name in found.callers):
                raise BuilderError(
                    Reason.NOT_FOUND,
                    f"there is no build {build[:40]!r}",
                    where="build id",
                    remedy="List shows the known builds; old builds are removed.",
                )
            return self._view(found)

    def view(self, build: BuildId) -> BuildStatus:
        """Return a build that must exist. Raises: BuilderError: NOT_FOUND, if it was forgotten."""
        return self.get(_OPERATOR, build)

    def newest(self, tenant: Tenant, most: int) -> list[BuildStatus]:
        """Return the newest builds of a tenant."""
        with self._changed:
            mine = (b for b in self._builds.newest() if tenant.sees_all or tenant.name in b.callers)
            return [self._view(build) for build, _ in zip(mine, range(most), strict=False)]

    def follow(
        self, build: BuildId, after: int, active: Callable[[], bool]
    ) -> Iterator[BuildStatus | LogLine]:
        """Yield the build at each change and its lines, until it has ended.

        A build that is merged into another continues as that build, from its first line.
        """
        shown: BuildStatus | None = None
        written: WrittenLines | None = None
        current = build
        while active():
            with self._changed:
                found = self._builds.get(build)
                if found is None:
                    return
                view = self._view(found)
                if written is None or view.id != current:
                    after = after if view.id == current else 0
                    current, written = view.id, self._logs.find(view.id)
                if written is None:
                    return
                if len(written) <= after and view == shown:
                    self._changed.wait(_POLL_S)
                    continue
            if view != shown and not view.phase.is_final:
                yield view
            shown = view
            while lines := written.after(after):
                yield from lines
                after = lines[-1].number
            if view.phase.is_final:
                yield view
                return

    def wake(self) -> None:
        """Let subscribers check whether their callers are still connected."""
        with self._changed:
            self._changed.notify_all()

    def close(self, longest_s: float) -> None:
        """Cancel all work; the next service continues the unfinished builds."""
        with self._changed:
            self._handle(ev.ServiceStopped())
            self._closing.set()
            self._save_unsaved()
        self._work.close(longest_s)
        self._logs.close_all()
        self._store.close()

    # --- events in, effects out -------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        with self._changed:
            if self._closing.is_set():
                return
            effects = self._builds.handle(event, self._now())
            # Recorded in the order of the effects, before any subscriber sees them, unless the
            # disk is full.
            for effect in effects:
                self._record(effect)
            self._changed.notify_all()
        for effect in effects:
            self._execute(effect)

    def _record(self, effect: fx.Effect) -> None:
        match effect:
            case fx.BuildChanged(name):
                if (build := self._builds.get(name)) is not None:
                    self._save(build)
            case fx.BuildMerged(name, other):
                self._logs.open(other).add(self._view_phase(other), f"merged with {name}")
                self._metrics.builds.labels("merged").inc()
                self._forget(name)
            case fx.StartPreparing(name) | fx.StartBuilding(name):
                self._work.admit(name)
            case fx.BuildFinished(name):
                if (build := self._builds.get(name)) is not None:
                    self._on_end(build)
                self._logs.close(name)
                self._store.clean(name)
                self._work.forget(name)
            case fx.ForgetBuild(name) | fx.RequestRejected(name):
                self._forget(name)

    def _execute(self, effect: fx.Effect) -> None:
        match effect:
            case fx.StartPreparing(name):
                self._work.prepare(name, self._requests[name], self._store.folder(name))
            case fx.StartBuilding(name, identity):
                build = self._builds.get(name)
                caller = build.caller if build else _OPERATOR.name
                folder = self._store.folder(name)
                self._work.build(name, self._requests[name], identity, folder, caller)
            case fx.CancelWork(name):
                self._work.cancel(name)
            case fx.PruneImages():
                self._work.submit(self._pruner.prune)
            case fx.RequestRejected(_, failure):
                raise _as_error(failure)

    def _tick(self) -> None:
        while not self._closing.wait(_TICK_S):
            try:
                self._handle(ev.Tick())
                with self._changed:
                    if not self._closing.is_set():
                        self._save_unsaved()
                        self._pruner.retry(self._work.submit)
            except Exception:
                # Without ticks no time limit holds: they go on.
                log.exception("internal error in a tick")
                self._metrics.internal_errors.inc()

    # --- on disk ---------------------------------------------------------------------------

    def _recover(self) -> None:
        for record in self._store.load():
            with self._changed:
                self._requests[record.id] = record.request
                for name in record.names:
                    self._builds.alias(name, record.id)
            if record.phase.is_final:
                self._store.clean(record.id)
                self._builds.restore(build_store.build_of(record))
                continue
            ready = build_store.read_ready(self._store.folder(record.id)) is not None
            if not ready:
                self._store.clean(record.id)
            self._logs.open(record.id).add(record.phase, "the builder was restarted")
            self._metrics.restarts.inc()
            source = SourceKind.GIT if record.request.git else SourceKind.ARCHIVE
            self._handle(
                ev.BuildRecovered(
                    record.id,
                    record.caller,
                    frozenset(record.callers),
                    source,
                    record.submitted_at,
                    record.identity if ready else None,
                    record.attempts,
                    record.request.at_once,
                )
            )

    def _save(self, build: Build) -> None:
        """Write the record of a build; if the disk fails, try again at the next tick."""
        names = self._builds.names_of(build.id)
        try:
            self._store.save(build_store.record_of(build, self._requests[build.id], names))
        except OSError as error:
            if build.id not in self._unsaved:
                log.error("build %s cannot be saved, until the disk allows it: %s", build.id, error)
            self._unsaved.add(build.id)
        else:
            self._unsaved.discard(build.id)

    def _save_unsaved(self) -> None:
        for name in list(self._unsaved):
            if (build := self._builds.get(name)) is not None:
                self._save(build)

    def _forget(self, build: BuildId) -> None:
        self._work.forget(build)
        self._logs.close(build)
        self._requests.pop(build, None)
        self._unsaved.discard(build)
        self._store.remove(build)

    def _line_writer(self, build: BuildId) -> WriteLine:
        def write_line(text: str) -> None:
            with self._changed:
                found = self._builds.get(build)
                written = self._logs.get(found.id) if found is not None else None
                if found is None or written is None:
                    return
                phase = found.phase
            # Not under the service's lock: a slow disk delays no other call.
            written.add(phase, text)
            with self._changed:
                self._changed.notify_all()

        return write_line

    # --- queries ---------------------------------------------------------------------------

    def _view(self, build: Build) -> BuildStatus:
        repository = self._requests[build.id].repository.repository
        return status_of(build, repository, self._builds.position(build.id))

    def _view_phase(self, name: BuildId) -> Phase:
        build = self._builds.get(name)
        return build.phase if build else Phase.FAILED

    def _phases(self) -> list[Phase]:
        with self._changed:
            return [build.phase for build in self._builds.newest()]


_OPERATOR = Tenant(Caller("the builder"), sees_all=True)


def _as_error(failure: Failure) -> BuilderError:
    return BuilderError(failure.reason, failure.what, where=failure.where, remedy=failure.remedy)
