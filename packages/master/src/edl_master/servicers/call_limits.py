"""Limits on calls that may wait, so that a bounded number of threads serves all others at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import grpc


class CallLimits(grpc.ServerInterceptor):
    """Refuses calls above a limit with UNAVAILABLE; clients and workers try again after a delay.

    A call that waits holds a thread of the server. Heartbeats and completions must never queue
    behind such calls.

    Args:
        limits: calls at a time, by method (``/edl.v1.Tasks/Ready``) or by service
            (``/edl.v1.Parameters/``); other methods have no limit.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = {name: threading.Semaphore(most) for name, most in limits.items()}

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        limit = self._limits.get(method) or self._limits.get(method[: method.rfind("/") + 1])
        if handler is None or limit is None:
            return handler
        if handler.response_streaming:
            return _limited_stream(handler, method, limit)
        return _limited_call(handler, method, limit)


def _limited_call(handler: Any, method: str, limit: threading.Semaphore) -> Any:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        _acquire(limit, method, context)
        try:
            return (handler.stream_unary or handler.unary_unary)(request, context)
        finally:
            limit.release()

    make = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(call, handler.request_deserializer, handler.response_serializer)


def _limited_stream(handler: Any, method: str, limit: threading.Semaphore) -> Any:
    def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        _acquire(limit, method, context)
        try:
            yield from (handler.stream_stream or handler.unary_stream)(request, context)
        finally:
            limit.release()

    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )
    return make(stream, handler.request_deserializer, handler.response_serializer)


def _acquire(limit: threading.Semaphore, method: str, context: grpc.ServicerContext) -> None:
    if not limit.acquire(blocking=False):
        context.abort(grpc.StatusCode.UNAVAILABLE, f"too many open calls of {method}")
