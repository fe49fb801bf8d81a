"""Access control of the ports of a process: who may call, by certificate and by ``rules``."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from edl_proto.errors import EdlError
from edl_proto.identity import rules
from edl_proto.identity.credentials import Credentials, server_credentials
from edl_proto.identity.names import Identity
from edl_proto.rpc_errors import abort


class AccessControl:
    """Authenticates the callers of one process, at all its ports, and checks each call.

    Args:
        credentials: of the process.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.interceptor = _Interceptor()
        """Of the gRPC server: comes before all others."""

    def add_port(self, server: grpc.Server, address: str) -> int:
        """Listen at ``host:port``; returns the port.

        Raises:
            RuntimeError: gRPC cannot listen there.
        """
        return server.add_secure_port(address, server_credentials(self._credentials))

    @property
    def folder(self) -> Path:
        """The folder of the process's identity, which only the process's user may open."""
        return self._credentials.path.parent

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap a plain connection, which is then void, in TLS; nothing is exchanged yet.

        Raises:
            OSError: the caller has left.
        """
        context = self._credentials.server_context
        return context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

    def identify(self, connection: ssl.SSLSocket, timeout_s: float) -> Identity:
        """Have the caller of a new connection prove who it is.

        Raises:
            OSError: it did not prove to be of this job, or not in time.
        """
        connection.settimeout(timeout_s)
        connection.do_handshake()
        certificate: Any = connection.getpeercert() or {}
        names = certificate.get("subjectAltName", ())
        try:
            return _identity([name for kind, name in names if kind == "URI"])
        except ValueError as error:
            raise ssl.SSLError(f"a caller has no identity: {error}") from error


def caller_of(context: grpc.ServicerContext) -> Identity:
    """Return the identity of the caller of a call over gRPC.

    Raises:
        ValueError: the caller has not proved who it is.
    """
    found: Any = context.auth_context()
    return _identity([uri.decode() for uri in found.get("peer_uri", ())])


def _identity(uris: list[str]) -> Identity:
    """Parse the only URI of a certificate. Raises: ValueError."""
    if len(uris) != 1:
        raise ValueError(f"{len(uris)} names")
    return Identity.parse(uris[0])


class _Interceptor(grpc.ServerInterceptor):
    """Checks each call before it is handled."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        make, inner = _split_handler(handler)

        def single(request: Any, context: grpc.ServicerContext) -> Any:
            _check(method, context, request)
            return inner(request, context)

        def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            rule = rules.RULES.get(method)
            if rule is None or not (rule.header or rule.own):
                _check(method, context, None)
                return inner(requests, context)
            first = next(requests, b"")
            if rule.header is None and not first:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call is empty")
            _check(method, context, first)
            return inner(itertools.chain((first,), requests), context)

        checked = stream if handler.request_streaming else single
        return make(checked, handler.request_deserializer, handler.response_serializer)


def _split_handler(handler: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the factory for this kind of handler, and the handler's own function."""
    match handler.request_streaming, handler.response_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler, handler.unary_unary
        case False, True:
            return grpc.unary_stream_rpc_method_handler, handler.unary_stream
        case True, False:
            return grpc.stream_unary_rpc_method_handler, handler.stream_unary
        case _:
            return grpc.stream_stream_rpc_method_handler, handler.stream_stream


def _check(method: str, context: Any, request: Any) -> None:
    """Let a call pass, or abort it."""
    try:
        rules.check(method, caller_of(context), request)
    except EdlError as error:
        abort(context, error)
    except ValueError as error:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the caller has no identity: {error}")
