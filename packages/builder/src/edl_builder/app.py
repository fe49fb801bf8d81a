"""The composition root: the only place that wires the builder's parts."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from edl_builder.adapters.audit_log import AuditLog
from edl_builder.adapters.build_store import BuildStore
from edl_builder.adapters.docker_engine import DockerEngine
from edl_builder.adapters.git import Git
from edl_builder.adapters.identity_tokens import IdentityTokens
from edl_builder.adapters.image_records import ImageRecords
from edl_builder.adapters.image_signer import ImageSigner
from edl_builder.adapters.registry import HttpRegistry
from edl_builder.adapters.usage_store import UsageStore
from edl_builder.config.access import Access, AccessFile
from edl_builder.config.builder_config import Config
from edl_builder.control.build_service import BuildService
from edl_builder.control.build_spans import record_span
from edl_builder.control.build_steps import BuildSteps, Packages
from edl_builder.control.engine_monitor import EngineMonitor
from edl_builder.core.build import Build, BuildLimits
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.limits import ServiceLimits
from edl_builder.core.open_calls import OpenCallLimits, OpenCalls
from edl_builder.core.ports import Engine, Registry
from edl_builder.core.redaction import Redactor
from edl_builder.metrics import Metrics
from edl_builder.server import HEALTH, REFLECTION, Server
from edl_builder.servicers.authentication import Authenticator
from edl_builder.servicers.builder import BuilderServicer
from edl_builder.servicers.guard import Guard
from edl_proto.printable import one_line
from edl_runtime.monitoring.server import MonitoringServer
from edl_spans.export import SpanExport

log = logging.getLogger(__name__)

_GRACE_S = 2.0
_OTHER_CALLS = 64
_OTHER_CALLS_PER_CALLER = 32
_REFLECTIONS = 4
_STOP_S = 15.0


class App:
    """One builder.

    Args:
        config: all settings.
        engine: the Docker engine of the settings, if None.
        registry: registries over HTTP, if None.

    Raises:
        BuilderError: it cannot be started; everything that was opened is closed again.
    """

    def __init__(
        self, config: Config, engine: Engine | None = None, registry: Registry | None = None
    ) -> None:
        self._config = config
        self._over = threading.Event()
        with ExitStack() as opened:
            self._open(opened, engine, registry)
            self._opened = opened.pop_all()

    def _open(self, opened: ExitStack, engine: Engine | None, registry: Registry | None) -> None:
        config = self._config
        redact = Redactor(config.secrets)
        metrics = Metrics()
        spans = SpanExport("edl-builder", {})
        if spans.is_on:
            opened.callback(spans.close)
            metrics.watch_spans(lambda: spans.counts)
        engine = engine or DockerEngine(config.engine, config.network, config.registries)
        with _translate_state_errors(config.state_dir):
            store = BuildStore(config.state_dir)
            opened.callback(store.close)
            records = ImageRecords(config.state_dir / "images")
        steps = BuildSteps(
            engine,
            registry or HttpRegistry(config.registries),
            Git(config.policy.sources, config.git_credentials, config.archive, config.git_ca_file),
            config.archive,
            Packages(config.index, config.wheels, config.requirements),
            records,
            ImageSigner(config.signing, config.registries) if config.signing else None,
        )
        service = BuildService(
            ServiceLimits(config.limits, config.archive, config.log_nbytes, config.keep_images),
            store,
            steps,
            engine,
            metrics,
            redact,
            UsageStore(config.state_dir / "usage.json", time.time),
            partial(_report_end, metrics, spans),
        )
        opened.callback(service.close, _STOP_S)
        with _translate_state_errors(config.state_dir):
            service.start()
        limits = _call_limits(config.limits)
        tokens = IdentityTokens(config.issuers)
        tokens.fetch_keys()
        callers = Authenticator(_access(config), tokens)
        audit = AuditLog(config.state_dir, time.time)
        guard = Guard(callers, OpenCalls(limits), audit, (HEALTH,))
        self._server = Server(
            BuilderServicer(service, guard.call_of, config.policy, metrics),
            config.target,
            limits.all_callers,
            config.tls,
            guard,
            redact,
            metrics.internal_errors.inc,
        )
        opened.callback(self._server.close, _GRACE_S)
        self.metrics = metrics
        self.metrics_port: int | None = None
        monitor = EngineMonitor(engine, metrics)
        opened.callback(monitor.close)
        if config.metrics_port is not None:
            self._serve_metrics(opened, monitor, config.metrics_port)

    def _serve_metrics(self, opened: ExitStack, monitor: EngineMonitor, port: int) -> None:
        host = self._config.metrics_host
        try:
            server = MonitoringServer(
                self.metrics.text,
                CONTENT_TYPE_LATEST,
                lambda: "" if monitor.is_ready else "the engine does not answer",
                host,
                port,
            )
        except OSError as error:
            raise BuilderError(
                Reason.INVALID,
                f"metrics cannot be served on port {port}: {error.strerror}",
                where="--metrics-port",
                remedy="Choose another port, 0 for any.",
            ) from error
        self.metrics_port = server.port
        opened.callback(server.close)

    @property
    def address(self) -> str:
        """The address at which it listens: host:port, or ``unix:`` and a path."""
        target = self._config.target
        if self._config.socket is not None:
            return target
        return f"{target.rpartition(':')[0]}:{self._server.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def take_signals(self) -> None:
        """Shut down on SIGTERM and SIGINT; to be called in the main thread of a process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if self._config.until_stdin_closes:
            threading.Thread(target=self._wait_for_stdin, name="stdin", daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._over.set()

    def _wait_for_stdin(self) -> None:
        # Not through sys.stdin: its lock, held by a waiting thread, is fatal at the end.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        self._over.set()

    def run(self) -> None:
        """Serve until a signal ends it."""
        while not self._over.wait(1.0):
            pass

    def close(self) -> None:
        """Close everything; the next service continues the builds under way."""
        self._opened.close()


@contextmanager
def _translate_state_errors(folder: Path) -> Iterator[None]:
    """Translate errors of the state folder into BuilderErrors within a context."""
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise BuilderError(
            Reason.INVALID,
            f"the state in {folder} cannot be used: {place}: {error.strerror}",
            where="--state-dir",
            remedy="Name a folder that the builder may write to, on a disk that is not full.",
        ) from error


def _report_end(metrics: Metrics, spans: SpanExport, build: Build) -> None:
    """Count a build that has ended, export its span, and log why it has failed."""
    metrics.count(build)
    record_span(spans, build)
    failure = build.failure
    if failure is not None and failure.reason is not Reason.CANCELLED:
        text = one_line(": ".join(filter(None, (failure.where, failure.what))))
        log.warning("build %s of %s failed, %s: %s", build.id, build.caller, failure.reason, text)


def _access(config: Config) -> Callable[[], Access]:
    if config.access_file is None:
        return lambda: config.access
    names = {issuer.name for issuer in config.issuers}
    return AccessFile(config.access_file, config.access, issuers=names)


def _call_limits(builds: BuildLimits) -> OpenCallLimits:
    """Return the limits: a call waits for each build, and others are short or few."""
    return OpenCallLimits(
        all_callers=builds.waiting + _OTHER_CALLS,
        per_caller=builds.waiting_per_caller + _OTHER_CALLS_PER_CALLER,
        per_method=_OTHER_CALLS_PER_CALLER,
        methods={
            "/edl.v1.Builder/Build": builds.waiting_per_caller + 1,
            f"/{REFLECTION}/ServerReflectionInfo": _REFLECTIONS,
        },
    )
