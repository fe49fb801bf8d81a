"""Exports spans to a collector of OpenTelemetry, if the standard variables name one.

Without ``OTEL_EXPORTER_OTLP_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` it is off, and
nothing is imported. A collector that does not answer costs spans, which are counted, and nothing
else.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP, _GRPC = "http/protobuf", "grpc"
_MAX_WAITING = 2048
"""Limit on the spans that wait for the collector, as in ``OTEL_BSP_MAX_QUEUE_SIZE``."""

_CLOSE_S = 5.0
"""How long the collector may keep the end of a process waiting."""

_INSTALL = "pip install 'edl-spans[otlp]'"


@dataclass(frozen=True, slots=True)
class SpanIdentity:
    """A span that others name as their parent, perhaps before it ends.

    Attributes:
        trace: 128 bits, not 0.
        span: 64 bits, not 0.
    """

    trace: int
    span: int

    @classmethod
    def of(cls, name: str) -> SpanIdentity:
        """Return the identity for a name; it is the same in every process."""
        digest = hashlib.sha256(name.encode()).digest()
        return cls(
            int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1
        )


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A piece of work that has ended.

    Attributes:
        name: what kind of work; few different ones.
        began: seconds since the epoch.
        seconds: how long it took.
        attributes: what else is known.
        failure: why it failed; empty if it did not.
        parent: the span that it is a part of.
        identity: its own; None: any.
    """

    name: str
    began: float
    seconds: float
    attributes: Mapping[str, str | int | float | bool]
    failure: str = ""
    parent: SpanIdentity | None = None
    identity: SpanIdentity | None = None


class SpanExport:
    """Sends spans in the background; safe for threads. Off, it takes them and does nothing.

    Args:
        service: its name, unless ``OTEL_SERVICE_NAME`` says another one.
        resource: attributes of all spans of this process.
    """

    def __init__(self, service: str, resource: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._taken = self._sent = self._lost = 0
        self._provider: Any = None
        exporter = _exporter()
        if exporter is None:
            return
        try:
            self._start(exporter, service, resource)
        except Exception as error:  # a variable that the library does not understand
            log.warning("spans are not exported: %s", error)

    @property
    def is_on(self) -> bool:
        return self._provider is not None

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of spans that were ``sent`` and ``lost``; the others wait."""
        with self._lock:
            return {"sent": self._sent, "lost": self._lost}

    def record(self, record: SpanRecord) -> None:
        """Send a span soon, or lose it if too many wait."""
        if self._provider is None:
            return
        from opentelemetry.trace import Status, StatusCode

        with self._lock:
            self._taken += 1
            if self._taken - self._sent - self._lost > self._most_waiting:
                self._lost += 1
                return
            self._identities.next = record.identity
            span = self._tracer.start_span(
                record.name,
                context=_context(record.parent),
                attributes=dict(record.attributes),
                start_time=_nanoseconds(record.began),
            )
            if not span.is_recording():  # the sampler of OTEL_TRACES_SAMPLER has left it out
                self._taken -= 1
        if record.failure:
            span.set_status(Status(StatusCode.ERROR, record.failure))
        span.end(_nanoseconds(record.began + max(0.0, record.seconds)))

    def close(self) -> None:
        """Send what waits, for some seconds at most."""
        if self._provider is None:
            return
        # The library would wait for half a minute.
        closing = threading.Thread(target=self._provider.shutdown, name="span-export", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        with self._lock:
            missing = self._taken - self._sent
        if missing:
            log.warning("%d of %d spans did not reach the collector", missing, self._taken)

    def _start(self, exporter: SpanExporter, service: str, resource: Mapping[str, str]) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class GivenIds(RandomIdGenerator):
            """Random ones, unless the next one is given."""

            next: SpanIdentity | None = None

            def generate_span_id(self) -> int:
                return self.next.span if self.next else super().generate_span_id()

            def generate_trace_id(self) -> int:
                return self.next.trace if self.next else super().generate_trace_id()

        # It reports each batch that fails; the counts and the last line of close say enough.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._most_waiting = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or _MAX_WAITING)
        self._identities = GivenIds()
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
        provider = TracerProvider(
            resource=Resource.create({**named, **resource}),
            id_generator=self._identities,
            shutdown_on_exit=False,
        )
        counted = _with_counts(exporter, self._count)
        provider.add_span_processor(BatchSpanProcessor(counted, self._most_waiting))
        self._tracer = provider.get_tracer("edl")
        self._provider = provider

    def _count(self, spans: int, *, sent: bool) -> None:
        with self._lock:
            if sent:
                self._sent += spans
            else:
                self._lost += spans


def _exporter() -> SpanExporter | None:
    """Return the exporter that the variables name; None if there is none."""
    environ = os.environ
    asked = any(environ.get(name) for name in _ENDPOINTS)
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not asked or disabled or environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    protocol = next((found for name in _PROTOCOLS if (found := environ.get(name))), _HTTP)
    try:
        if protocol == _HTTP:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        if protocol == _GRPC:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
                OTLPSpanExporter as GrpcExporter,
            )

            return GrpcExporter()
    except ImportError as error:
        log.warning("spans are not exported: %s (%s)", error, _INSTALL)
    except Exception as error:  # an address or a file of certificates that cannot be used
        log.warning("spans are not exported: %s", error)
    else:
        log.warning("spans are not exported: %s is neither %s nor %s", protocol, _HTTP, _GRPC)
    return None


def _nanoseconds(at: float) -> int:
    """Convert seconds, exact to the microsecond, which is the precision of such a float."""
    return round(at * 1e6) * 1000


def _context(parent: SpanIdentity | None) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    ours = SpanContext(parent.trace, parent.span, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(ours), Context())


def _with_counts(exporter: SpanExporter, count: Any) -> SpanExporter:
    """Wrap an exporter so that the spans that it sends and loses are counted."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counted(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = SpanExportResult.FAILURE
            try:
                result = exporter.export(spans)
            finally:
                count(len(spans), sent=result is SpanExportResult.SUCCESS)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Counted()
