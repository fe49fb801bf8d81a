"""The exception for failures that users see, and its representation in gRPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import grpc

from edl_proto.printable import clip, indent, visible
from edl_proto.v1 import error_pb2
from edl_proto.v1.error_pb2 import ErrorCode as ErrorCode  # for those who raise errors

_METADATA_KEY = "edl-error-bin"

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


def _utf8(text: str) -> str:
    """A text that a message can carry: a name of a file may have bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()


class EdlError(Exception):
    """A failure that the user sees: a code, what happened, where, and what to do.

    Args:
        code: one of ``edl.v1.ErrorCode``.
        what: one sentence.
        where: file:line and function, file and record range, URI or port.
        remedy: what the user can do.
        detail: traceback or log tail.
    """

    def __init__(
        self,
        code: ErrorCode.ValueType,
        what: str,
        *,
        where: str = "",
        remedy: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy
        self.detail = detail

    @property
    def status(self) -> grpc.StatusCode:
        """The gRPC status of a call that fails with this error."""
        return GRPC_STATUS.get(self.code, grpc.StatusCode.INTERNAL)

    @property
    def code_name(self) -> str:
        """The name of the code; ``INTERNAL`` for one that this version does not know."""
        known = self.code if self.code in GRPC_STATUS else ErrorCode.INTERNAL
        return ErrorCode.Name(known)

    def __str__(self) -> str:
        lines = [f"{self.code_name}: {indent(self.what)}"]
        if self.where:
            lines.append(f"  where: {indent(self.where)}")
        if self.remedy:
            lines.append(f"  what to do: {indent(self.remedy)}")
        # Python itself prints this for a script of the user that does not catch it.
        return visible("\n".join(lines))

    def __reduce__(self) -> tuple[Callable[[bytes], EdlError], tuple[bytes]]:
        return EdlError.from_bytes, (self.to_proto().SerializeToString(),)

    def to_proto(self) -> error_pb2.Error:
        return error_pb2.Error(
            code=self.code,
            what=_utf8(self.what),
            where=_utf8(self.where),
            remedy=_utf8(self.remedy),
            detail=_utf8(self.detail),
        )

    @classmethod
    def from_proto(cls, message: error_pb2.Error) -> EdlError:
        return cls(
            message.code,
            message.what,
            where=message.where,
            remedy=message.remedy,
            detail=message.detail,
        )

    @classmethod
    def from_rpc(cls, error: grpc.RpcError) -> EdlError | None:
        """Return the error that a failed call carries, or None."""
        metadata = getattr(error, "trailing_metadata", lambda: None)() or ()
        for key, value in metadata:
            if key == _METADATA_KEY:
                return cls.from_bytes(value)
        return None

    @classmethod
    def from_bytes(cls, content: bytes) -> EdlError:
        """The inverse of ``to_proto().SerializeToString()``."""
        return cls.from_proto(error_pb2.Error.FromString(content))


def error_metadata(error: EdlError) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata of a failed call; ``EdlError.from_rpc`` reads it."""
    return ((_METADATA_KEY, error.to_proto().SerializeToString()),)


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
    context.abort(error.status, clip(error.what, _DETAILS_CHARS))
    raise AssertionError("abort() raises")


class ErrorInterceptor(grpc.ServerInterceptor):
    """Turns an exception of a servicer into a gRPC status with the error attached.

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
        if handler.response_streaming:

            def streaming(request: Any, context: grpc.ServicerContext) -> Any:
                inner = handler.stream_stream or handler.unary_stream
                try:
                    yield from inner(request, context)
                except Exception as error:
                    self._abort(method, error, context)

            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(streaming, handler.request_deserializer, handler.response_serializer)

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            inner = handler.stream_unary or handler.unary_unary
            try:
                return inner(request, context)
            except Exception as error:
                self._abort(method, error, context)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(unary, handler.request_deserializer, handler.response_serializer)

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
