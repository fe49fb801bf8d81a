"""Direct connections: who lies, leaves, stalls or restarts at one end, and what the other sees."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Identity, Role
from edl_proto.identity.rules import RULES, AccessRule
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, parameters, raw_calls
from edl_proto.transport import frames as raw_frames
from edl_proto.transport.direct_connection import (
    CallError,
    Connection,
    FrameError,
    IncomingMessage,
)
from edl_proto.transport.endpoints import connect_local, connect_tcp
from edl_proto.transport.listener import Listener
from edl_proto.v1 import parameters_pb2 as pb
from edl_runtime.identity.folder import IdentityFolder

WAIT_S = 200.0
ECHO, REFUSE, WAIT, LATE = range(4)


CALLER = Identity("w", Role.WORKER, 0)


class Place:
    """The listener of these tests, and the identities that it admits."""

    def __init__(self, identities: IdentityFolder | None, *, local: bool = False) -> None:
        access_control, self.peer, self.local = None, None, local
        if identities is not None:
            access_control = AccessControl(Credentials(identities.file(Role.MASTER)))
            self.peer = Credentials(identities.file(Role.WORKER, 0)).to(Role.MASTER)
        self.internal_errors: list[str] = []
        self.waits = threading.Event()
        self.left = threading.Event()
        self.memory = bytearray(8)
        methods = [(m.__name__, m) for m in (self.echo, self.refuse, self.wait, self.late)]
        noted = ErrorInterceptor(
            on_internal_error=lambda name, _: self.internal_errors.append(name)
        )
        self.listener = Listener(methods, "127.0.0.1", noted.translate, 0, access_control)

    def connect(self) -> Connection:
        return Connection(self.connect_socket())

    def connect_socket(self) -> socket.socket:
        """A connection of the same caller, which says what it likes."""
        if self.local:
            return connect_local(self.listener.offer(lambda: CALLER).local, WAIT_S)
        return connect_tcp("127.0.0.1", self.listener.port, WAIT_S, self.peer)

    def echo(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes | memoryview]:
        """Gives so many bytes back as the header says; their memory is used again at once."""
        size = int(next(frames))
        memory = memoryview(self.memory)[:size]
        raw_frames.fill(frames, memory)
        yield b"%d" % size
        yield memory
        self.memory[:] = bytes(len(self.memory))

    def refuse(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        if next(frames) == b"bug":
            raise ZeroDivisionError
        raise EdlError(ErrorCode.STALE_LEASE, "no", remedy="leave")
        yield b""

    def wait(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        next(frames)
        self.waits.set()
        while call.is_active():
            time.sleep(0.01)
        self.left.set()
        yield b""

    def late(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        next(frames)
        yield b"4"
        raise ZeroDivisionError


@pytest.fixture(params=["TCP", "TLS", "local"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    identities = None
    if request.param != "TCP":
        identities = IdentityFolder(tmp_path / "identity", "w")
        identities.create([(Role.MASTER, None), (Role.WORKER, 0)])
        for name in ("echo", "refuse", "wait", "late"):
            monkeypatch.setitem(cast(Any, RULES), name, AccessRule(frozenset((Role.WORKER,))))
    place = Place(identities, local=request.param == "local")
    yield place
    place.listener.close()


def echo(connection: Connection, sent: bytes, size: int | None = None) -> bytes:
    header = b"%d" % (len(sent) if size is None else size)
    received = connection.call(ECHO, header, [memoryview(sent)], WAIT_S)
    back = bytearray(int(next(received)))
    received.fill(memoryview(back))
    return bytes(back)


def test_a_connection_carries_one_call_after_the_other(place: Place) -> None:
    connection = place.connect()
    assert [echo(connection, sent) for sent in (b"12345678", b"", b"abc")] == [
        b"12345678",
        b"",
        b"abc",
    ]


def test_memory_is_not_given_back_before_it_has_travelled(place: Place) -> None:
    place.memory = bytearray(1 << 24)
    sent = bytes(range(256)) * (1 << 16)
    assert echo(place.connect(), sent) == sent


def test_an_error_is_reported_completely_and_the_connection_goes_on(place: Place) -> None:
    connection = place.connect()
    large = memoryview(bytes(1 << 24))  # not read when the answer is there
    with pytest.raises(CallError) as caught:
        connection.call(REFUSE, b"", [large], WAIT_S)
    error = EdlError.from_rpc(caught.value)
    assert error is not None
    assert (error.code, error.what, error.remedy) == (ErrorCode.STALE_LEASE, "no", "leave")
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert echo(connection, b"after") == b"after"
    assert place.internal_errors == []


def test_an_internal_error_is_noted_and_answered(place: Place) -> None:
    connection = place.connect()
    with pytest.raises(CallError, match="ZeroDivisionError"):
        connection.call(REFUSE, b"bug", [], WAIT_S)
    assert place.internal_errors == ["refuse"]
    assert echo(connection, b"after") == b"after"


def test_an_internal_error_after_the_header_breaks_the_connection(place: Place) -> None:
    with pytest.raises(ConnectionResetError):
        place.connect().call(LATE, b"", [], WAIT_S)
    assert place.internal_errors == ["late"]


@pytest.mark.parametrize(("sent", "size"), [(b"1234", 8), (b"12345678", 4)])
def test_a_payload_of_another_size_than_its_header_says_spoils_no_later_call(
    place: Place, sent: bytes, size: int
) -> None:
    connection = place.connect()
    if size > len(sent):
        with pytest.raises(CallError, match="4 of 8 bytes early"):
            echo(connection, sent, size)
    else:
        assert echo(connection, sent, size) == sent[:size]
    assert echo(connection, b"after") == b"after"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("<4sBxxxIQ", b"edl\x01", ECHO, 1 << 31, 0),
        struct.pack("<4sBxxxIQ", b"edl\x01", 200, 0, 0),
    ],
    ids=["another protocol", "a huge header", "no such method"],
)
def test_a_peer_with_another_protocol_is_disconnected(place: Place, said: bytes) -> None:
    with place.connect_socket() as stranger:
        stranger.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert echo(place.connect(), b"others") == b"others"


def test_a_huge_payload_takes_no_memory_before_it_comes(place: Place) -> None:
    with place.connect_socket() as stranger:
        stranger.sendall(struct.pack("<4sBxxxIQ", b"edl\x01", ECHO, 1, 1 << 50) + b"4" + b"abcd")
        assert stranger.recv(64).endswith(b"4abcd")


def test_a_caller_that_left_is_noticed(place: Place) -> None:
    with place.connect_socket() as caller:
        caller.sendall(struct.pack("<4sBxxxIQ", b"edl\x01", WAIT, 0, 0))
        assert place.waits.wait(WAIT_S)
        assert not place.left.wait(0.05)
    assert place.left.wait(WAIT_S)


def _expect_no_answer(connection: Connection) -> None:
    with pytest.raises(ConnectionResetError):
        connection.call(WAIT, b"", [], WAIT_S)


def test_a_deadline_counts_for_the_whole_call(place: Place) -> None:
    with pytest.raises(TimeoutError):
        place.connect().call(WAIT, b"", [], 0.05)


def test_closing_ends_calls_that_wait(place: Place) -> None:
    connection = place.connect()
    caller = threading.Thread(target=_expect_no_answer, args=(connection,), daemon=True)
    caller.start()
    assert place.waits.wait(WAIT_S)
    place.listener.close()
    caller.join(WAIT_S)
    assert not caller.is_alive()


def test_what_is_received_ends_with_the_payload() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"abcdef")
        received = IncomingMessage(ours, b"header", 3, None)
        assert list(received) == [b"header", b"abc"]
        with pytest.raises(FrameError):
            received.fill(memoryview(bytearray(1)))


# --- the stub ------------------------------------------------------------------------------


class Answering:
    """A servicer that tells how it was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pull(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self.calls.append("gRPC" if isinstance(call, grpc.ServicerContext) else "direct")
        next(frames)
        yield pb.PullReply(version=3).SerializeToString()

    initialize = put_values = push = put_rows = scan_rows = pull


class Waiting(Answering):
    """A servicer that answers when the caller does not wait any more."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def pull(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self.waits.set()
        while call.is_active():
            time.sleep(0.01)
        yield from super().pull(frames, call)

    initialize = put_values = push = put_rows = scan_rows = pull


def serve(
    servicer: Any, port: int, direct: Callable[[Listener], Listener | None]
) -> tuple[Any, Listener, int]:
    server = grpc.server(futures.ThreadPoolExecutor(4), options=channels.SERVER_OPTIONS)
    listener = raw_calls.listen(
        parameters.PARAMETERS, servicer, "127.0.0.1", ErrorInterceptor().translate
    )
    raw_calls.add_to_server(parameters.PARAMETERS, servicer, server, direct(listener))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, listener, port


def pull(stub: parameters.ParametersStub) -> int:
    return int(stub.pull(pb.PullHeader(), bytearray, WAIT_S).version)


_held: list[socket.socket] = []


def close_and_hold_port(listener: Listener) -> Listener:
    """Close a listener, and keep its port from other processes, such as the server."""
    listener.close()
    holder = socket.socket()
    holder.bind(("127.0.0.1", listener.port))
    _held.append(holder)
    return listener


@pytest.mark.parametrize(
    "direct", [close_and_hold_port, lambda _: None], ids=["unreachable", "none"]
)
def test_without_a_direct_port_calls_go_over_grpc(
    direct: Callable[[Listener], Listener | None],
) -> None:
    servicer = Answering()
    server, listener, port = serve(servicer, 0, direct)
    with channels.connect(f"127.0.0.1:{port}") as channel:
        stub = parameters.ParametersStub(channel, f"127.0.0.1:{port}")
        assert [pull(stub), pull(stub)] == [3, 3]
    assert servicer.calls == ["gRPC", "gRPC"]
    listener.close()
    server.stop(None).wait()


def test_closing_ends_the_calls_of_other_threads() -> None:
    """A caller that has left a server does not wait for it; channels do the same."""
    servicer = Waiting()
    server, listener, port = serve(servicer, 0, lambda one: one)
    ended: list[grpc.RpcError] = []

    def call() -> None:
        with pytest.raises(grpc.RpcError) as caught:
            stub.pull(pb.PullHeader(), bytearray, 10 * WAIT_S)
        ended.append(caught.value)

    with channels.connect(f"127.0.0.1:{port}") as channel:
        stub = parameters.ParametersStub(channel, f"127.0.0.1:{port}")
        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        assert servicer.waits.wait(WAIT_S)
        stub.close()
        caller.join(WAIT_S)
        assert [error.code() for error in ended] == [grpc.StatusCode.UNAVAILABLE]
    listener.close()
    server.stop(None).wait()


def test_a_server_that_comes_back_elsewhere_is_found_again() -> None:
    servicer = Answering()
    server, listener, port = serve(servicer, 0, lambda one: one)
    with channels.connect(f"127.0.0.1:{port}") as channel:
        stub = parameters.ParametersStub(channel, f"127.0.0.1:{port}")
        assert pull(stub) == 3
        listener.close()
        server.stop(None).wait()
        with pytest.raises(grpc.RpcError) as caught:
            pull(stub)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        server, listener, _ = serve(servicer, port, lambda one: one)
        deadline = time.monotonic() + WAIT_S
        while True:  # until the channel has found it
            try:
                assert pull(stub) == 3
                break
            except grpc.RpcError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert set(servicer.calls) == {"direct"}
        stub.close()
    listener.close()
    server.stop(None).wait()
