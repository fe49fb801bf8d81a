"""Failures a person may see: one exception, one table from code to gRPC status and exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc

from edl_proto.v1 import error_pb2
from edl_proto.v1.error_pb2 import ErrorCode

_METADATA_KEY = "edl-error-bin"


@dataclass(frozen=True, slots=True)
class Entry:
    """How a code shows: to a gRPC peer, to a shell, to a person."""

    status: grpc.StatusCode
    exit_code: int
    title: str


# Exit codes: 1 the job failed, 2 usage, 3 data, 4 model file, 5 exists or in use,
# 6 not found, 7 resources of the machine, 8 stopped or timed out, 9 an image cannot be built,
# 10 not allowed, 11 a service that is needed does not serve, 70 a defect of edl.
CATALOG: dict[ErrorCode.ValueType, Entry] = {
    error_pb2.USAGE: Entry(grpc.StatusCode.INVALID_ARGUMENT, 2, "wrong option"),
    error_pb2.DATA_NOT_FOUND: Entry(grpc.StatusCode.NOT_FOUND, 3, "no such data"),
    error_pb2.DATA_EMPTY: Entry(grpc.StatusCode.FAILED_PRECONDITION, 3, "no records"),
    error_pb2.DATA_UNREADABLE: Entry(grpc.StatusCode.FAILED_PRECONDITION, 3, "unreadable data"),
    error_pb2.DATA_DAMAGED: Entry(grpc.StatusCode.DATA_LOSS, 3, "damaged data"),
    error_pb2.MODEL_NOT_FOUND: Entry(grpc.StatusCode.NOT_FOUND, 4, "no such model"),
    error_pb2.MODEL_IMPORT: Entry(
        grpc.StatusCode.FAILED_PRECONDITION, 4, "model file cannot be imported"
    ),
    error_pb2.MODEL_CONTRACT: Entry(
        grpc.StatusCode.FAILED_PRECONDITION, 4, "model file breaks the contract"
    ),
    error_pb2.SHAPE_MISMATCH: Entry(
        grpc.StatusCode.FAILED_PRECONDITION, 4, "data and model disagree"
    ),
    error_pb2.UNKNOWN_PARAMETER: Entry(grpc.StatusCode.INVALID_ARGUMENT, 2, "unknown parameter"),
    error_pb2.OPTIMIZER_UNSUPPORTED: Entry(
        grpc.StatusCode.UNIMPLEMENTED, 4, "unsupported optimizer"
    ),
    error_pb2.NAN_LOSS: Entry(grpc.StatusCode.ABORTED, 1, "the loss is not finite"),
    error_pb2.USER_CODE: Entry(grpc.StatusCode.ABORTED, 1, "the model file raised an error"),
    error_pb2.OUTPUT_EXISTS: Entry(grpc.StatusCode.ALREADY_EXISTS, 5, "output exists"),
    error_pb2.OUTPUT_UNWRITABLE: Entry(
        grpc.StatusCode.PERMISSION_DENIED, 7, "output cannot be written"
    ),
    error_pb2.PORT_IN_USE: Entry(grpc.StatusCode.UNAVAILABLE, 5, "port in use"),
    error_pb2.DISK_FULL: Entry(grpc.StatusCode.RESOURCE_EXHAUSTED, 7, "disk full"),
    error_pb2.WORKER_CRASH_LOOP: Entry(grpc.StatusCode.ABORTED, 1, "workers keep crashing"),
    error_pb2.TASK_DEAD_LETTERED: Entry(grpc.StatusCode.ABORTED, 1, "a task failed for good"),
    error_pb2.JOB_NOT_FOUND: Entry(grpc.StatusCode.NOT_FOUND, 6, "no such job"),
    error_pb2.JOB_EXISTS: Entry(grpc.StatusCode.ALREADY_EXISTS, 5, "job exists"),
    error_pb2.STOPPED: Entry(grpc.StatusCode.CANCELLED, 8, "job stopped"),
    error_pb2.MASTER_LOST: Entry(grpc.StatusCode.UNAVAILABLE, 1, "the job's master is gone"),
    error_pb2.PARAMETER_SERVER_LOST: Entry(
        grpc.StatusCode.UNAVAILABLE, 1, "a parameter server cannot be reached"
    ),
    error_pb2.TIMED_OUT: Entry(grpc.StatusCode.DEADLINE_EXCEEDED, 8, "timed out"),
    error_pb2.CHECKPOINT_DAMAGED: Entry(grpc.StatusCode.DATA_LOSS, 3, "damaged checkpoint"),
    error_pb2.STALE_LEASE: Entry(grpc.StatusCode.FAILED_PRECONDITION, 70, "lease lost"),
    error_pb2.STALE_INCARNATION: Entry(
        grpc.StatusCode.FAILED_PRECONDITION, 70, "the master was replaced"
    ),
    error_pb2.NOT_READY: Entry(grpc.StatusCode.FAILED_PRECONDITION, 70, "not ready"),
    error_pb2.INTERNAL: Entry(grpc.StatusCode.INTERNAL, 70, "defect in edl"),
    error_pb2.IMAGE_BUILD_FAILED: Entry(grpc.StatusCode.ABORTED, 9, "the image cannot be built"),
    error_pb2.BUILD_NOT_FOUND: Entry(grpc.StatusCode.NOT_FOUND, 6, "no such build or image"),
    error_pb2.FORBIDDEN: Entry(grpc.StatusCode.PERMISSION_DENIED, 10, "not allowed"),
    error_pb2.LIMIT_EXCEEDED: Entry(grpc.StatusCode.RESOURCE_EXHAUSTED, 10, "over a limit"),
    error_pb2.SOURCE_UNREACHABLE: Entry(
        grpc.StatusCode.FAILED_PRECONDITION, 4, "the model zoo cannot be fetched"
    ),
    error_pb2.ENGINE_UNAVAILABLE: Entry(
        grpc.StatusCode.UNAVAILABLE, 11, "the container engine does not serve"
    ),
    error_pb2.REGISTRY_UNAVAILABLE: Entry(
        grpc.StatusCode.UNAVAILABLE, 11, "the image registry does not serve"
    ),
    error_pb2.BUILDER_RESTARTED: Entry(
        grpc.StatusCode.UNAVAILABLE, 11, "the builder was restarted"
    ),
    error_pb2.BUILDER_UNAVAILABLE: Entry(
        grpc.StatusCode.UNAVAILABLE, 11, "the builder does not answer"
    ),
}


class EdlError(Exception):
    """A failure with a code, told as what, where and what to do.

    Args:
        code: one of ``edl.v1.ErrorCode``.
        what: one sentence.
        where: file:line and function, file and record range, URI or port.
        remedy: what the reader can do about it.
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
    def entry(self) -> Entry:
        return CATALOG.get(self.code, CATALOG[error_pb2.INTERNAL])

    @property
    def exit_code(self) -> int:
        return self.entry.exit_code

    def __str__(self) -> str:
        lines = [f"{self.entry.title}: {self.what}"]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.remedy:
            lines.append(f"  what to do: {self.remedy}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Callable[[bytes], EdlError], tuple[bytes]]:
        return EdlError.from_bytes, (self.to_proto().SerializeToString(),)

    def to_proto(self) -> error_pb2.Error:
        return error_pb2.Error(
            code=self.code,
            what=self.what,
            where=self.where,
            remedy=self.remedy,
            detail=self.detail,
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
        """The error that a peer put on a failed call; None if the call failed without one."""
        metadata = getattr(error, "trailing_metadata", lambda: None)() or ()
        for key, value in metadata:
            if key == _METADATA_KEY:
                return cls.from_bytes(value)
        return None

    @classmethod
    def from_bytes(cls, content: bytes) -> EdlError:
        """What ``to_proto().SerializeToString()`` has written."""
        return cls.from_proto(error_pb2.Error.FromString(content))


def attached(error: EdlError) -> tuple[tuple[str, bytes], ...]:
    """The metadata with which a failed call carries an error; ``from_rpc`` reads it."""
    return ((_METADATA_KEY, error.to_proto().SerializeToString()),)


class ErrorInterceptor(grpc.ServerInterceptor):
    """Turns an exception of a servicer into a gRPC status with the error attached.

    ``translate`` may map a domain exception to an EdlError; what it leaves is a defect
    and reported as INTERNAL, with ``on_defect`` called for the log.
    """

    def __init__(
        self,
        translate: Callable[[Exception], EdlError | None] | None = None,
        on_defect: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._translate = translate or (lambda _: None)
        self._on_defect = on_defect or (lambda _method, _error: None)

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
        # context.abort() itself raises a bare Exception once the status is set; so does a
        # call that ended because its peer left. Neither is a defect.
        if context.code() is not None or not context.is_active():
            raise error
        known = self.told(method, error)
        context.set_trailing_metadata(attached(known))
        context.abort(known.entry.status, known.what)
        raise AssertionError("abort() raises")

    def told(self, method: str, error: Exception) -> EdlError:
        """What to answer for an exception; a defect is noted."""
        known = error if isinstance(error, EdlError) else self._translate(error)
        if known is None:
            self._on_defect(method, error)
            known = EdlError(
                error_pb2.INTERNAL,
                f"{type(error).__name__}: {error}",
                where=method,
                remedy="This is a defect of edl; the service's log has the traceback.",
            )
        return known
