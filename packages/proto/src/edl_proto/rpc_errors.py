"""Passes failures that users see through gRPC: as a status, with the error attached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from edl_proto.errors import EdlError, ErrorCode, error_metadata
from edl_proto.printable import clip

_DETAILS_CHARS = 250
"""Of up to 12 bytes each, as gRPC encodes them."""

_ERROR_NBYTES = 4800
"""Both fit into the 8 KiB of metadata that gRPC lets pass. A call whose answer has more ends with a
status that is none of the server's."""

GRPC_STATUS: dict[ErrorCode.ValueType, grpc.StatusCode] = {
    ErrorCode.USAGE: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.DATA_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.DATA_EMPTY: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.DATA_UNREADABLE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.DATA_DAMAGED: grpc.StatusCode.DATA_LOSS,
    ErrorCode.MODEL_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.MODEL_IMPORT: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.MODEL_CONTRACT: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.SHAPE_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.UNKNOWN_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.OPTIMIZER_UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorCode.NAN_LOSS: grpc.StatusCode.ABORTED,
    ErrorCode.USER_CODE: grpc.StatusCode.ABORTED,
    ErrorCode.OUTPUT_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.OUTPUT_UNWRITABLE: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.PORT_IN_USE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.DISK_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.WORKER_CRASH_LOOP: grpc.StatusCode.ABORTED,
    ErrorCode.TASK_DEAD_LETTERED: grpc.StatusCode.ABORTED,
    ErrorCode.JOB_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.JOB_OVER: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.WORKER_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.VERSION_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.JOB_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.STOPPED: grpc.StatusCode.CANCELLED,
    ErrorCode.MASTER_LOST: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.CHECKPOINT_DAMAGED: grpc.StatusCode.DATA_LOSS,
    ErrorCode.STALE_LEASE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.STALE_INCARNATION: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.NOT_READY: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
    ErrorCode.IMAGE_BUILD_FAILED: grpc.StatusCode.ABORTED,
    ErrorCode.BUILD_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.LIMIT_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.SOURCE_UNREACHABLE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.ENGINE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.REGISTRY_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.BUILDER_RESTARTED: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.BUILDER_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.PARAMETER_SERVER_LOST: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.SYSTEM: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.CLUSTER_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.TRACKER_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


def status_of(error: EdlError) -> grpc.StatusCode:
    """Return the gRPC status of a call that fails with this error."""
    return GRPC_STATUS.get(error.code, grpc.StatusCode.INTERNAL)


def abort(context: Any, error: EdlError) -> NoReturn:
    """End a call with an error. If it is too long for gRPC, the middles of its texts are left out.

    Args:
        context: of the call, a ``grpc.ServicerContext``.
    """
    message, most = error.to_proto(), _ERROR_NBYTES
    while message.ByteSize() > _ERROR_NBYTES:
        most //= 2
        message.what = clip(message.what, most)
        message.where = clip(message.where, most)
        message.remedy = clip(message.remedy, most)
        message.detail = clip(message.detail, most)
    context.set_trailing_metadata(error_metadata(EdlError.from_proto(message)))
    context.abort(status_of(error), clip(error.what, _DETAILS_CHARS))
    raise AssertionError("abort() raises")


class ErrorInterceptor(grpc.ServerInterceptor):
    """Turns an exception of a servicer into a gRPC status with the error attached.

    A message that cannot be decoded is the caller's mistake. It is answered with USAGE; gRPC by
    itself would log a traceback for each.

    Args:
        translate: maps a domain exception to an EdlError, or to None. None makes it an internal
            error.
        on_internal_error: called with method and exception for each internal error, to log it.
    """

    def __init__(
        self,
        translate: Callable[[Exception], EdlError | None] | None = None,
        on_internal_error: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._translate_domain = translate or (lambda _: None)
        self._on_internal_error = on_internal_error or (lambda _method, _error: None)

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        check = _check_all if handler.request_streaming else _check
        if handler.response_streaming:

            def streaming(request: Any, context: grpc.ServicerContext) -> Any:
                inner = handler.stream_stream or handler.unary_stream
                try:
                    yield from inner(check(method, request), context)
                except Exception as error:
                    self._abort(method, error, context)

            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(streaming, _decoder(handler), handler.response_serializer)

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            inner = handler.stream_unary or handler.unary_unary
            try:
                return inner(check(method, request), context)
            except Exception as error:
                self._abort(method, error, context)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(unary, _decoder(handler), handler.response_serializer)

    def _abort(self, method: str, error: Exception, context: Any) -> NoReturn:
        if (
            isinstance(error, NotImplementedError)
            and context.code() is grpc.StatusCode.UNIMPLEMENTED
        ):
            # As generated servicers end a call of a method that they lack; gRPC would log it.
            context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
        # context.abort() itself raises a bare Exception once the status is set; so does a
        # call that ended because its peer left. Neither is an internal error.
        if context.code() is not None or not context.is_active():
            raise error
        abort(context, self.translate(method, error))

    def translate(self, method: str, error: Exception) -> EdlError:
        """The error to answer for an exception; calls ``on_internal_error`` for an unknown one."""
        known = error if isinstance(error, EdlError) else self._translate_domain(error)
        if known is None:
            self._on_internal_error(method, error)
            known = EdlError(
                ErrorCode.INTERNAL,
                f"{type(error).__name__}: {error}",
                where=method,
                remedy="This is an internal error of edl; the service's log has the traceback.",
            )
        return known


_UNREADABLE = object()
"""In the place of a message that cannot be decoded."""


def _decoder(handler: Any) -> Callable[[bytes], Any] | None:
    """Return the decoder of a method's messages, which raises no error."""
    decode = handler.request_deserializer
    if decode is None:
        return None

    def decode_or_mark(content: bytes) -> Any:
        try:
            return decode(content)
        except DecodeError:
            return _UNREADABLE

    return decode_or_mark


def _check(method: str, message: Any) -> Any:
    """Return a message. Raises: EdlError: USAGE; it cannot be decoded."""
    if message is _UNREADABLE:
        raise EdlError(
            ErrorCode.USAGE,
            "a message cannot be decoded",
            where=method,
            remedy="Send messages of the .proto files of this version.",
        )
    return message


def _check_all(method: str, messages: Iterable[Any]) -> Iterator[Any]:
    """Yield the messages of a stream. Raises: EdlError: USAGE; one cannot be decoded."""
    return (_check(method, each) for each in messages)
