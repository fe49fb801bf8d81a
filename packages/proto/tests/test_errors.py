"""One error: the same words on both ends of a call."""

from __future__ import annotations

import pickle
import traceback
from concurrent import futures
from typing import Any

import grpc
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import GRPC_STATUS, ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc, task_pb2, task_pb2_grpc


def test_every_code_has_a_grpc_status() -> None:
    codes = set(ErrorCode.values()) - {ErrorCode.ERROR_CODE_UNSPECIFIED}
    assert set(GRPC_STATUS) == codes


def test_the_text_of_an_error_has_what_where_and_what_to_do() -> None:
    error = EdlError(ErrorCode.DATA_EMPTY, "a.rio holds no record", where="a.rio", remedy="fill it")
    assert str(error).splitlines() == [
        "DATA_EMPTY: a.rio holds no record",
        "  where: a.rio",
        "  what to do: fill it",
    ]
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.what, copy.where, copy.remedy) == (
        error.code,
        error.what,
        error.where,
        error.remedy,
    )


class Failing(job_pb2_grpc.JobServicer):
    """A servicer whose calls end in the ways that calls end."""

    def GetStatus(self, request: Any, context: Any) -> Any:
        raise EdlError(
            ErrorCode.PORT_IN_USE, "port 1 is taken", where="127.0.0.1:1", detail="x" * 900
        )

    def Scale(self, request: Any, context: Any) -> Any:
        raise KeyError("domain")

    def Stop(self, request: Any, context: Any) -> Any:
        raise ZeroDivisionError("oops")

    def Acknowledge(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.OUT_OF_RANGE, "said by hand")

    def ReadTimeline(self, request: Any, context: Any) -> Any:
        text = f"begin {'数' * 50_000} end"
        raise EdlError(ErrorCode.IMAGE_BUILD_FAILED, text, where=text, remedy=text, detail=text)
        yield

    def WatchEvents(self, request: Any, context: Any) -> Any:
        yield job_pb2.Event(number=1)
        raise EdlError(ErrorCode.STOPPED, "enough")


def test_what_python_prints_of_an_error_commands_no_terminal() -> None:
    """A script that trains a foreign model may catch nothing."""
    title = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"
    error = EdlError(ErrorCode.MODEL_IMPORT, title, where=title, remedy=title, detail=title)
    printed = "".join(traceback.format_exception(error))
    assert "MODEL_IMPORT" in printed
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(printed)
    assert printed.count("\\x1b]52;c;ZXZpbA==\\x07\\u009b2J\\u202e") == 3
    assert error.what == title, "as it was, for who shows it in another way"


@pytest.fixture
def service(connection: Any) -> Any:
    channel, internal_errors = connection
    return job_pb2_grpc.JobStub(channel), internal_errors


@pytest.fixture
def connection() -> Any:
    internal_errors: list[str] = []

    def translate(error: Exception) -> EdlError | None:
        if isinstance(error, KeyError):
            return EdlError(ErrorCode.USAGE, "translated")
        return None

    server = grpc.server(
        futures.ThreadPoolExecutor(4),
        interceptors=[
            ErrorInterceptor(translate, lambda method, _: internal_errors.append(method))
        ],
        options=channels.SERVER_OPTIONS,
    )
    job_pb2_grpc.add_JobServicer_to_server(Failing(), server)
    task_pb2_grpc.add_TasksServicer_to_server(task_pb2_grpc.TasksServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with channels.connect(f"127.0.0.1:{port}") as channel:
        yield channel, internal_errors
    server.stop(None)


def _failure(call: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_a_method_that_is_missing_is_no_internal_error(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    channel, internal_errors = connection
    stub = task_pb2_grpc.TasksStub(channel)
    failure = _failure(lambda: stub.Lease(task_pb2.LeaseRequest(), timeout=200))
    assert failure.code() is grpc.StatusCode.UNIMPLEMENTED
    assert not internal_errors
    assert "Traceback" not in caplog.text


def test_an_error_crosses_the_wire_whole(service: Any) -> None:
    stub, internal_errors = service
    failure = _failure(lambda: stub.GetStatus(job_pb2.GetStatusRequest(), timeout=200))
    error = EdlError.from_rpc(failure)
    assert failure.code() is grpc.StatusCode.UNAVAILABLE
    assert error is not None
    assert error.code == ErrorCode.PORT_IN_USE
    assert error.where == "127.0.0.1:1"
    assert error.detail == "x" * 900
    assert not internal_errors


def test_an_error_that_is_too_long_for_grpc_crosses_with_its_ends(service: Any) -> None:
    stub, internal_errors = service
    failure = _failure(lambda: list(stub.ReadTimeline(job_pb2.ReadTimelineRequest(), timeout=200)))
    error = EdlError.from_rpc(failure)
    assert failure.code() is grpc.StatusCode.ABORTED
    assert failure.details().startswith("begin 数")
    assert error is not None
    assert error.code == ErrorCode.IMAGE_BUILD_FAILED
    for text in (error.what, error.where, error.remedy, error.detail):
        assert text.startswith("begin 数")
        assert text.endswith("数 end")
    assert not internal_errors


def test_a_domain_exception_is_translated_in_one_place(service: Any) -> None:
    stub, internal_errors = service
    error = EdlError.from_rpc(_failure(lambda: stub.Scale(job_pb2.ScaleRequest(), timeout=200)))
    assert error is not None
    assert error.code == ErrorCode.USAGE
    assert not internal_errors


def test_an_unknown_exception_is_an_internal_error(service: Any) -> None:
    stub, internal_errors = service
    error = EdlError.from_rpc(_failure(lambda: stub.Stop(job_pb2.StopRequest(), timeout=200)))
    assert error is not None
    assert error.code == ErrorCode.INTERNAL
    assert "ZeroDivisionError" in error.what
    assert internal_errors == ["/edl.v1.Job/Stop"]


def test_an_abort_by_hand_stays_as_it_was(service: Any) -> None:
    stub, internal_errors = service
    failure = _failure(lambda: stub.Acknowledge(job_pb2.AcknowledgeRequest(), timeout=200))
    assert failure.code() is grpc.StatusCode.OUT_OF_RANGE
    assert EdlError.from_rpc(failure) is None
    assert not internal_errors


def test_a_stream_ends_in_the_error(service: Any) -> None:
    stub, _ = service
    stream = stub.WatchEvents(job_pb2.WatchEventsRequest(), timeout=200)
    assert next(stream).number == 1
    error = EdlError.from_rpc(_failure(lambda: next(stream)))
    assert error is not None
    assert error.code == ErrorCode.STOPPED
