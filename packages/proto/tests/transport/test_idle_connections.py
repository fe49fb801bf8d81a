"""Connections that say nothing, as many as a port may have: those that work still get in."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_proto.identity.rules import RULES, AccessRule
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import listener as direct_listener
from edl_proto.transport import open_connections
from edl_proto.transport.direct_connection import Connection
from edl_proto.transport.endpoints import connect_tcp
from edl_proto.transport.listener import Listener
from edl_runtime.identity.folder import IdentityFolder

WAIT_S = 200.0
IDLE = 4096


def push(frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
    yield b"applied " + b"".join(frames)


class Server:
    """A secured port, and callers of the job."""

    def __init__(self, place: Path) -> None:
        self._identities = IdentityFolder(place / "identity", "w")
        self._identities.create([(Role.MASTER, None), (Role.WORKER, 0), (Role.WORKER, 1)])
        access_control = AccessControl(Credentials(self._identities.file(Role.MASTER)))
        self.listener = Listener(
            [("push", push)], "127.0.0.1", ErrorInterceptor().translate, 0, access_control
        )

    def worker(self, number: int) -> Peer:
        return Credentials(self._identities.file(Role.WORKER, number)).to(Role.MASTER)

    def connect(self, number: int = 0) -> Connection:
        return connect(self.listener.port, self.worker(number))


def connect(port: int, peer: Peer | None = None) -> Connection:
    return Connection(connect_tcp("127.0.0.1", port, WAIT_S, peer))


def call_push(connection: Connection) -> bytes:
    return next(connection.call(0, b"gradient", [], WAIT_S))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setitem(cast(Any, RULES), "push", AccessRule(frozenset((Role.WORKER,))))
    server = Server(tmp_path)
    yield server
    server.listener.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = max(soft, 2 * IDLE)
        enough = hard == resource.RLIM_INFINITY or hard >= wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard if enough else wanted))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_as_many_idle_connections_as_there_may_be_keep_no_caller_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_listener, "_FIRST_CALL_S", 1e6)  # time does not help
    begun = server.connect()
    assert call_push(begun) == b"applied gradient"
    with ExitStack() as idle:
        for _ in range(IDLE):
            address = "127.0.0.1", server.listener.port
            idle.enter_context(socket.create_connection(address, WAIT_S))
        with closing(server.connect()) as late:
            assert call_push(late) == b"applied gradient"
        assert call_push(begun) == b"applied gradient", "it was there before"
        threads = [one for one in threading.enumerate() if one.name == "direct-call"]
        assert len(threads) < 2 * open_connections.MAX_NEW, "those that end now are among them"


def test_the_oldest_new_connection_makes_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is tested without a port, where a missing limit is seen sooner."""
    connections = open_connections.OpenConnections()
    monkeypatch.setattr(open_connections, "share", lambda *_: 2)
    # Its thread would do that, once it is shut down.
    monkeypatch.setattr(open_connections, "shut_down", connections.remove)
    with ExitStack() as opened:
        made = [opened.enter_context(socket.socket()) for _ in range(3)]

        def add_all() -> None:
            assert all(connections.add(one) for one in made)

        adding = threading.Thread(target=add_all, daemon=True)
        adding.start()
        adding.join(WAIT_S)
        assert not adding.is_alive(), "the third one waits for a place"
        assert [connections.begin(one, None) for one in made] == [False, True, True]


def test_a_worker_has_so_many_connections_and_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_connections, "MAX_PER_CALLER", 3)
    mine = [server.connect(0) for _ in range(3)]
    assert {call_push(one) for one in mine} == {b"applied gradient"}
    with pytest.raises(OSError):  # noqa: PT011 - the end or a reset
        call_push(server.connect(0))
    assert call_push(server.connect(1)) == b"applied gradient", "another worker"
    mine.pop().close()
    deadline = time.monotonic() + WAIT_S
    while True:  # until the server has seen that
        try:
            assert call_push(server.connect(0)) == b"applied gradient"
            break
        except OSError:
            assert time.monotonic() < deadline


def test_all_workers_together_have_so_many_connections_and_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_connections, "MAX_SERVING", 2)
    mine = [server.connect(number) for number in (0, 1)]
    assert {call_push(one) for one in mine} == {b"applied gradient"}
    with pytest.raises(OSError):  # noqa: PT011 - the end or a reset
        call_push(server.connect(0))
    assert {call_push(one) for one in mine} == {b"applied gradient"}


def test_who_has_proved_who_it_is_still_has_to_call(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a connection without any call ends: workers compute for longer than that."""
    begun = server.connect()
    assert call_push(begun) == b"applied gradient"
    monkeypatch.setattr(direct_listener, "_FIRST_CALL_S", 2.0)
    with connect_tcp("127.0.0.1", server.listener.port, WAIT_S, server.worker(0)) as idle:
        assert idle.recv(1) == b""
    assert call_push(begun) == b"applied gradient"


FEW_FILES = """
import resource, sys
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import listener as direct_listener
from edl_proto.transport.listener import Listener

direct_listener._FIRST_CALL_S = 1e6

def push(frames, call):
    yield b"applied " + b"".join(frames)

listener = Listener([("push", push)], "127.0.0.1", ErrorInterceptor().translate)
held = [open("/dev/null") for _ in range(52)]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(listener.port, flush=True)
sys.stdin.read()
"""


def test_a_server_without_file_descriptors_goes_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FEW_FILES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            port = int(process.stdout.readline())
            with ExitStack() as idle:
                for _ in range(100):
                    idle.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S))
                with closing(connect(port)) as late:
                    assert call_push(late) == b"applied gradient"
        finally:
            process.stdin.close()
        said = process.stderr.read().decode()
    assert said.count("direct connections cannot be accepted") == 1, said
    assert "may open 64, see ulimit -n" in said


GRPC_WITH_FEW_FILES = """
import resource, sys
from concurrent import futures
import grpc
from edl_proto.transport import channels

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
options = (*channels.SERVER_OPTIONS, channels.connection_limit())
server = grpc.server(futures.ThreadPoolExecutor(2), options=options)
port = channels.add_port(server, "127.0.0.1:0")
server.start()
print(port, flush=True)
sys.stdin.readline()
files = [open("/dev/null") for _ in range(64)]
print("opened", flush=True)
sys.stdin.read()
"""


def test_connections_of_strangers_leave_files_for_the_process_itself() -> None:
    """A master that could write no file would end its job."""
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", GRPC_WITH_FEW_FILES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            with ExitStack() as opened:
                for _ in range(400):
                    last = opened.enter_context(socket.create_connection(("127.0.0.1", port), 60.0))
                    last.sendall(hello)
                with suppress(ConnectionResetError):
                    assert last.recv(1) == b"", "it is hung up on"
                process.stdin.write(b"\n")
                process.stdin.flush()
                assert process.stdout.readline() == b"opened\n"
        finally:
            process.stdin.close()
