"""Spans reach a collector of OpenTelemetry; one that does not answer costs nothing but spans."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from edl_spans import export as span_export
from edl_spans.export import SpanExport, SpanIdentity, SpanRecord

ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
WORK = SpanRecord("work", 1_700_000_000.5, 2.25, {"edl.worker": 3})


class Collector(otlp_grpc.TraceServiceServicer):
    """A collector that keeps what it was sent, over HTTP or gRPC.

    Attributes:
        may_answer: until it is set, requests over HTTP wait.
    """

    def __init__(self) -> None:
        self.requests: list[otlp.ExportTraceServiceRequest] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                collector.may_answer.wait(200)
                assert self.path == "/v1/traces"
                collector.requests.append(otlp.ExportTraceServiceRequest.FromString(content))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        self._grpc = grpc.server(ThreadPoolExecutor(1))
        otlp_grpc.add_TraceServiceServicer_to_server(self, self._grpc)
        self.grpc = f"http://127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        self.http = f"http://127.0.0.1:{self._http.server_address[1]}"

    def Export(
        self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportTraceServiceResponse:
        self.requests.append(request)
        return otlp.ExportTraceServiceResponse()

    def close(self) -> None:
        self.may_answer.set()
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None)

    @property
    def spans(self) -> list[trace_pb2.Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, str]:
        found = self.requests[0].resource_spans[0].resource.attributes
        return {each.key: each.value.string_value for each in found}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture(autouse=True)
def _no_variables_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_export, "_CLOSE_S", 300.0)
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    # The library gives a collector ten seconds for an answer; a busy machine may need longer.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")


@pytest.mark.parametrize("protocol", ["", "http/protobuf", "grpc"])
def test_spans_reach_the_collector(
    protocol: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, collector.grpc if protocol == "grpc" else collector.http)
    monkeypatch.setenv(PROTOCOL, protocol)
    export = SpanExport("edl-master", {"edl.incarnation": "x"})
    job = SpanIdentity.of("job 1")
    export.record(SpanRecord("part", 10.0, 1.0, {}, "it broke", parent=job))
    export.record(SpanRecord("job", 9.0, 3.0, {}, identity=job))
    export.record(WORK)
    export.close()
    assert export.counts == {"sent": 3, "lost": 0}
    part, whole, work = collector.spans
    assert collector.resource()["service.name"] == "edl-master"
    assert collector.resource()["edl.incarnation"] == "x"
    assert (whole.name, whole.parent_span_id) == ("job", b"")
    assert part.trace_id == whole.trace_id == job.trace.to_bytes(16, "big")
    assert part.parent_span_id == whole.span_id == job.span.to_bytes(8, "big")
    assert (part.status.code, part.status.message) == (
        trace_pb2.Status.STATUS_CODE_ERROR,
        "it broke",
    )
    assert work.trace_id != whole.trace_id
    assert work.status.code != trace_pb2.Status.STATUS_CODE_ERROR
    assert (work.start_time_unix_nano, work.end_time_unix_nano) == (
        1_700_000_000_500_000_000,
        1_700_000_002_750_000_000,
    )
    assert [(each.key, each.value.int_value) for each in work.attributes] == [("edl.worker", 3)]


def test_the_standard_variables_name_the_service(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.http + "/v1/traces")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    export = SpanExport("edl-master", {})
    export.record(WORK)
    export.close()
    assert collector.resource()["service.name"] == "mine"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
        {ENDPOINT: "http://127.0.0.1:1", PROTOCOL: "http/json"},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_BSP_MAX_QUEUE_SIZE": "many"},
    ],
    ids=["no endpoint", "disabled", "none", "unknown protocol", "damaged variable"],
)
def test_it_is_off(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    export = SpanExport("edl-master", {})
    assert not export.is_on
    export.record(WORK)
    export.close()
    assert export.counts == {"sent": 0, "lost": 0}


def test_too_many_waiting_spans_are_lost_and_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.may_answer.clear()
    monkeypatch.setenv(ENDPOINT, collector.http)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "600")
    export = SpanExport("edl-master", {})
    for _ in range(700):
        export.record(WORK)
    assert export.counts == {"sent": 0, "lost": 100}
    collector.may_answer.set()
    export.close()
    assert export.counts == {"sent": 600, "lost": 100}
    assert len(collector.spans) == 600


def test_a_collector_that_does_not_answer_delays_no_end(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector.may_answer.clear()
    monkeypatch.setenv(ENDPOINT, collector.http)
    monkeypatch.setattr(span_export, "_CLOSE_S", 0.2)
    export = SpanExport("edl-master", {})
    export.record(WORK)
    export.close()
    assert export.counts["sent"] == 0
    assert "1 of 1 spans did not reach the collector" in caplog.text
