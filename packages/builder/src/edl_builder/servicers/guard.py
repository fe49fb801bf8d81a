"""Guards every method: authenticates the caller, limits open calls, and records the call.

All of it happens before a message of the call is read.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from edl_builder.codec import error_to, refusal
from edl_builder.core.build_request import Tenant
from edl_builder.core.call_record import CallRecord
from edl_builder.core.failure import BuilderError
from edl_builder.core.open_calls import OpenCalls
from edl_builder.servicers.authentication import Authenticator
from edl_proto.errors import EdlError
from edl_proto.rpc_errors import status_of


@dataclass(slots=True)
class AdmittedCall:
    """A call that was admitted; servicers add its subject."""

    tenant: Tenant
    about: dict[str, str] = field(default_factory=dict)


class Guard(grpc.ServerInterceptor):
    """Authenticates and admits each call before its first message is read.

    Args:
        callers: finds the tenant of a call.
        open_calls: counts them.
        record: is told of each call that has ended.
        open_to_all: names of services that need no tenant.
    """

    def __init__(
        self,
        callers: Authenticator,
        open_calls: OpenCalls,
        record: Callable[[CallRecord], None],
        open_to_all: tuple[str, ...] = (),
    ) -> None:
        self._callers = callers
        self._open_calls = open_calls
        self._record = record
        self._open_to_all = tuple(f"/{name}/" for name in open_to_all)
        self._lock = threading.Lock()
        self._calls: weakref.WeakKeyDictionary[grpc.ServicerContext, AdmittedCall] = (
            weakref.WeakKeyDictionary()
        )

    def call_of(self, context: grpc.ServicerContext) -> AdmittedCall:
        """Return the admitted call of a context. Raises: KeyError: it never passed here."""
        with self._lock:
            return self._calls[context]

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(self._open_to_all):
            return handler

        # A handler of streams runs before a message is there; on the wire there is no difference.
        def guard(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            return self._run(handler, method, requests, context)

        return grpc.stream_stream_rpc_method_handler(
            guard, handler.request_deserializer, handler.response_serializer
        )

    def _run(
        self, handler: Any, method: str, requests: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        begin = time.monotonic()
        call: AdmittedCall | None = None
        status = "OK"
        try:
            call = AdmittedCall(self._callers.authenticate(context))
            if call.tenant.subject:
                call.about["subject"] = call.tenant.subject
            with self._lock:
                self._open_calls.enter(call.tenant.name, method)
                self._calls[context] = call
            try:
                yield from _answers(handler, method, requests, context)
            finally:
                with self._lock:
                    self._open_calls.leave(call.tenant.name, method)
        except GeneratorExit:
            status = "CANCELLED"
            raise
        except Exception as error:
            status = _status(error, context)
            raise
        finally:
            self._record(
                CallRecord(
                    tenant=str(call.tenant.name) if call else "",
                    method=method,
                    peer=context.peer(),
                    about=dict(call.about) if call else {},
                    status=status,
                    seconds=time.monotonic() - begin,
                )
            )


def _answers(
    handler: Any, method: str, requests: Iterator[Any], context: grpc.ServicerContext
) -> Iterator[Any]:
    asked: Any = requests
    if not handler.request_streaming:
        asked = next(requests, None)
        if asked is None:
            raise refusal("the call has no message", method, "Send one message.")
    if handler.response_streaming:
        yield from (handler.stream_stream or handler.unary_stream)(asked, context)
    else:
        yield (handler.stream_unary or handler.unary_unary)(asked, context)


def _status(error: Exception, context: grpc.ServicerContext) -> str:
    code = cast(Any, context).code()
    if code is not None:
        return str(code.name)
    if not context.is_active():
        return "CANCELLED"
    # The outer interceptor translates the error after this one: the record needs its result.
    known = error_to(error.failure) if isinstance(error, BuilderError) else error
    return status_of(known).name if isinstance(known, EdlError) else "INTERNAL"


class DedicatedThreads(grpc.ServerInterceptor):
    """Serves one method in threads of its own, so that no other method delays it.

    Args:
        service: its full name; other methods of it are not served.
        method: the name of the method; one message, one answer.
        threads: that serve it.
    """

    def __init__(self, service: str, method: str, threads: ThreadPoolExecutor) -> None:
        self._prefix = f"/{service}/"
        self._method = f"/{service}/{method}"
        self._threads = threads

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        name = handler_call_details.method
        if handler is None or not name.startswith(self._prefix):
            return handler
        if name != self._method:
            return None

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            return handler.unary_unary(request, context)

        answer.experimental_thread_pool = self._threads  # type: ignore[attr-defined]  # gRPC reads it
        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )
