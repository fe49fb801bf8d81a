"""Raw frames: what goes in comes out, and a stream that lies is found out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, parameters, raw_calls
from edl_proto.transport import frames as raw_frames
from edl_proto.transport.direct_connection import FrameError
from edl_proto.v1 import parameters_pb2 as pb


class Memory:
    """Keeps what is initialised or pushed, and gives it back."""

    def __init__(self) -> None:
        self.values = b""
        self.short = 0
        self.rows = b"", b""
        self.more = 0

    def initialize(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = pb.InitializeHeader.FromString(next(frames))
        buffer = bytearray(header.nbytes)
        raw_frames.fill(frames, memoryview(buffer))
        self.values = bytes(buffer)
        yield pb.InitializeReply(accepted=True).SerializeToString()

    def put_values(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = pb.PutValuesHeader.FromString(next(frames))
        buffer = bytearray(header.nbytes)
        raw_frames.fill(frames, memoryview(buffer))
        self.values = bytes(buffer)
        yield pb.PutValuesReply(accepted=header.version == 1).SerializeToString()

    def pull(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = pb.PullHeader.FromString(next(frames))
        if header.HasField("have_version") and header.have_version == 1:
            yield pb.PullReply(version=1).SerializeToString()
            return
        yield pb.PullReply(version=1, nbytes=len(self.values) + self.short).SerializeToString()
        yield from raw_frames.split(memoryview(self.values), 65_543)

    def push(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = pb.PushHeader.FromString(next(frames))
        gradient = np.empty(header.gradient.nbytes // 4, np.float32)
        raw_frames.fill(frames, memoryview(gradient))
        state = bytearray(header.gradient.state_nbytes)
        raw_frames.fill(frames, memoryview(state))
        reply = (2 * gradient).tobytes() + bytes(state)
        yield pb.PushReply(outcome=pb.APPLIED, version=2, nbytes=len(reply)).SerializeToString()
        yield from raw_frames.split(memoryview(reply))

    def put_rows(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = pb.PutRowsHeader.FromString(next(frames))
        ids = bytearray(8 * header.rows.count)
        raw_frames.fill(frames, memoryview(ids))
        rows = bytearray(b"".join(frames))
        self.rows = bytes(ids), bytes(rows)
        yield pb.PutRowsReply(accepted=True).SerializeToString()

    def scan_rows(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        next(frames)
        ids, rows = self.rows
        yield pb.ScanRowsReply(count=len(ids) // 8 + self.more).SerializeToString()
        yield from raw_frames.split(memoryview(ids), 24)
        yield from raw_frames.split(memoryview(rows), 40)


@pytest.fixture(params=["over gRPC", "direct"])
def plane(request: Any) -> Any:
    server = grpc.server(futures.ThreadPoolExecutor(4), options=channels.SERVER_OPTIONS)
    memory = Memory()
    listener = raw_calls.listen(
        parameters.PARAMETERS, memory, "127.0.0.1", ErrorInterceptor().translate
    )
    raw_calls.add_to_server(parameters.PARAMETERS, memory, server, listener)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with channels.connect(address) as channel:
        stub = parameters.ParametersStub(channel, address if request.param == "direct" else "")
        yield stub, memory
        stub.close()
    listener.close()
    server.stop(None)


def test_values_come_back_as_they_went(plane: Any) -> None:
    stub, _ = plane
    values = np.arange(1_000_003, dtype=np.float32)
    reply = stub.initialize(
        pb.InitializeHeader(nbytes=values.nbytes), memoryview(values), timeout_s=200
    )
    assert reply.accepted
    received = np.empty_like(values)
    pulled = stub.pull(pb.PullHeader(), lambda nbytes: memoryview(received), timeout_s=200)
    assert pulled.nbytes == values.nbytes
    assert np.array_equal(received, values)


def test_values_of_workers_go_as_initial_ones_do(plane: Any) -> None:
    stub, memory = plane
    values = np.arange(100_003, dtype=np.float32)
    header = pb.PutValuesHeader(version=1, nbytes=values.nbytes)
    assert stub.put_values(header, memoryview(values), timeout_s=200).accepted
    assert memory.values == values.tobytes()


def test_nothing_newer_costs_no_buffer(plane: Any) -> None:
    stub, _ = plane

    def no_buffer(nbytes: int) -> memoryview:
        raise AssertionError("nothing was to be received")

    assert stub.pull(pb.PullHeader(have_version=1), no_buffer, timeout_s=200).nbytes == 0


def test_a_push_brings_newer_values_back(plane: Any) -> None:
    stub, _ = plane
    gradient = np.linspace(0, 1, 300_000, dtype=np.float32)
    state = np.arange(10, dtype=np.float32)
    received = np.empty(300_010, np.float32)
    reply = stub.push(
        pb.PushHeader(
            gradient=pb.GradientHeader(nbytes=gradient.nbytes, state_nbytes=state.nbytes)
        ),
        (memoryview(gradient), memoryview(state)),
        lambda nbytes: memoryview(received),
        timeout_s=200,
    )
    assert reply.outcome == pb.APPLIED
    assert np.array_equal(received[:300_000], 2 * gradient)
    assert np.array_equal(received[300_000:], state)


def test_a_stream_that_ends_early_is_an_error(plane: Any) -> None:
    stub, memory = plane
    memory.values, memory.short = b"12345678", 1
    # Over gRPC the stream ends; a direct connection waits for what was announced.
    with pytest.raises((FrameError, grpc.RpcError), match=r"ended after 8 of 9|in time"):
        stub.pull(pb.PullHeader(), lambda nbytes: memoryview(bytearray(nbytes)), timeout_s=1)
    memory.short = 0
    received = bytearray(8)
    assert stub.pull(pb.PullHeader(), lambda nbytes: received, timeout_s=200).nbytes == 8
    assert received == b"12345678"


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(1, 64))
def test_split_and_fill_are_inverse(payload: bytes, frame_bytes: int) -> None:
    target = bytearray(len(payload))
    raw_frames.fill(raw_frames.split(memoryview(payload), frame_bytes), memoryview(target))
    assert target == payload


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9)), st.integers(0, 60))
def test_fill_never_writes_past_the_buffer(frames: list[bytes], size: int) -> None:
    target = bytearray(size)
    total = sum(map(len, frames))
    try:
        raw_frames.fill(iter(frames), memoryview(target))
    except FrameError:
        assert total != size or size == 0
    else:
        assert b"".join(frames)[:size] == target


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(1, 16), st.data())
def test_messages_come_as_they_were_sent_however_they_are_cut(
    sent: list[bytes], frame_bytes: int, data: st.DataObject
) -> None:
    stream = b"".join(map(raw_frames.delimit, [*sent, b""]))
    cut = list(raw_frames.split(memoryview(stream), frame_bytes))
    assert list(raw_frames.messages(iter(cut))) == sent
    stop = data.draw(st.integers(0, len(stream) - 1))
    received = raw_frames.messages(raw_frames.split(memoryview(stream[:stop]), frame_bytes))
    came: list[bytes] = []
    with pytest.raises(FrameError, match="ended after"):
        came.extend(received)
    assert came == sent[: len(came)], "what has come whole was passed on"


def test_rows_come_back_as_they_went(plane: Any) -> None:
    stub, _ = plane
    ids, rows = np.arange(7) - 3, np.arange(14, dtype=np.float32)
    header = pb.PutRowsHeader(rows=pb.TableRows(table=0, count=7))
    assert stub.put_rows(header, (memoryview(ids), memoryview(rows)), 10).accepted
    reply, got_ids, got_rows = stub.scan_rows(pb.ScanRowsHeader(), 2, 10)
    assert reply.count == 7
    assert np.frombuffer(got_ids, np.int64).tolist() == ids.tolist()
    assert np.frombuffer(got_rows, np.float32).tolist() == rows.tolist()


@pytest.mark.parametrize("more", [1, 1 << 40])
def test_an_answer_that_announces_rows_which_do_not_come_is_found_out(
    plane: Any, more: int
) -> None:
    stub, memory = plane
    memory.more = more
    with pytest.raises((FrameError, grpc.RpcError)):
        stub.scan_rows(pb.ScanRowsHeader(), 2, 1)
