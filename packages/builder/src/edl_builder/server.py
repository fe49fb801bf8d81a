"""The gRPC server: services, port, TLS and error translation."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from concurrent import futures

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from edl_builder.codec import error_to
from edl_builder.config.tls import Tls
from edl_builder.core.failure import BuilderError, Failure, Reason
from edl_builder.servicers.builder import BuilderServicer
from edl_builder.servicers.guard import DedicatedThreads, Guard
from edl_proto.errors import EdlError
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport.channels import SERVER_OPTIONS, connection_limit
from edl_proto.v1 import builder_pb2, builder_pb2_grpc

log = logging.getLogger(__name__)

_SPARE_THREADS = 16
"""The threads beyond the calls that the guard admits, which refuse the others."""

_HEALTH_THREADS = 4

OPTIONS = {
    **dict(SERVER_OPTIONS),
    # A connection without calls is closed.
    "grpc.max_connection_idle_ms": 120_000,
    "grpc.max_concurrent_streams": 128,
    "grpc.max_metadata_size": 16 << 10,
    # A chunk of an archive; edl sends 256 KiB, other callers what gRPC allows by default.
    "grpc.max_receive_message_length": 4 << 20,
}

REFLECTION = reflection.SERVICE_NAME
HEALTH = health.SERVICE_NAME


class Server:
    """Listens until it is closed.

    Args:
        servicer: what is served.
        address: host:port, or ``unix:`` and the path of a socket.
        calls: how many calls the guard admits at a time.
        tls: None for none.
        guard: stands before every method but health.
        redact: removes secrets from logged tracebacks.
        on_internal_error: called for each call that failed with an internal error.

    Raises:
        BuilderError: the port is taken, or the address is none of this machine.
    """

    def __init__(
        self,
        servicer: BuilderServicer,
        address: str,
        calls: int,
        tls: Tls | None,
        guard: Guard,
        redact: Callable[[str], str],
        on_internal_error: Callable[[], None],
    ) -> None:
        def note(method: str, error: Exception) -> None:
            log.error("%s\n%s", method, redact("".join(traceback.format_exception(error))))
            on_internal_error()

        self._health_threads = futures.ThreadPoolExecutor(
            _HEALTH_THREADS, thread_name_prefix="health"
        )
        self._server = grpc.server(
            futures.ThreadPoolExecutor(calls + _SPARE_THREADS, thread_name_prefix="grpc"),
            interceptors=[
                DedicatedThreads(HEALTH, "Check", self._health_threads),
                ErrorInterceptor(_translate, note),
                guard,
            ],
            options=[*OPTIONS.items(), connection_limit()],
        )
        builder_pb2_grpc.add_BuilderServicer_to_server(servicer, self._server)
        name = builder_pb2.DESCRIPTOR.services_by_name["Builder"].full_name
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for each in ("", name):
            self._health.set(each, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection((name, HEALTH, REFLECTION), self._server)
        try:
            self.port = (
                self._server.add_secure_port(address, _credentials(tls))
                if tls
                else self._server.add_insecure_port(address)
            )
        except RuntimeError:
            raise BuilderError(
                Reason.INVALID,
                f"the builder cannot listen on {address}",
                where="--listen",
                remedy="Choose another port (0 for any), or an address of this machine.",
            ) from None
        self._server.start()

    def close(self, grace_s: float) -> None:
        """Take no more calls, and give running calls ``grace_s`` to end."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s + 1)
        self._health_threads.shutdown(wait=False)


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.certificate.read_bytes())],
        root_certificates=tls.client_ca.read_bytes() if tls.client_ca else None,
        require_client_auth=tls.client_ca is not None,
    )


def _translate(error: Exception) -> EdlError | None:
    match error:
        case BuilderError():
            return error_to(error.failure)
        case DecodeError():
            return error_to(Failure(Reason.INVALID, "a message cannot be read", where="Build"))
        case _:
            return None
