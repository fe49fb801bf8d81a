"""Who gets in at the Unix socket of direct connections, and where there is one."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from edl_proto import unix_socket
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Identity, Role
from edl_proto.identity.rules import RULES, AccessRule
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import listener as direct_listener
from edl_proto.transport.direct_connection import Connection
from edl_proto.transport.endpoints import connect_local
from edl_proto.transport.listener import Listener
from edl_proto.v1 import parameters_pb2 as pb
from edl_runtime.identity.folder import IdentityFolder

WAIT_S = 200.0
CALLER = Identity("w", Role.WORKER, 0)


def answer(frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
    yield b"to " + next(frames)


def start(place: Path) -> Listener:
    """A master's listener."""
    if not place.exists():
        IdentityFolder(place, "w").create([(Role.MASTER, None)])
    access_control = AccessControl(Credentials(IdentityFolder(place, "w").file(Role.MASTER)))
    return Listener(
        [("answer", answer)], "127.0.0.1", ErrorInterceptor().translate, 0, access_control
    )


def call(connected: socket.socket) -> bytes:
    return next(Connection(connected).call(0, b"one", [], WAIT_S))


def offer_socket(listener: Listener) -> pb.LocalSocket:
    return listener.offer(lambda: CALLER).local


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Listener]]:
    monkeypatch.setitem(cast(Any, RULES), "answer", AccessRule(frozenset((Role.WORKER,))))
    running: list[Listener] = []

    def begin(place: Path) -> Listener:
        running.append(start(place))
        return running[-1]

    yield begin
    for one in running:
        one.close()


def test_a_ticket_opens_one_connection(run: Callable[[Path], Listener], tmp_path: Path) -> None:
    local = offer_socket(run(tmp_path / "identity"))
    with connect_local(local, WAIT_S) as connection:
        assert call(connection) == b"to one"
    for spent in (local.ticket, bytes(len(local.ticket)), b"edl\x01" + bytes(60)):
        false = pb.LocalSocket(path=local.path, ticket=spent)
        with connect_local(false, WAIT_S) as connection, pytest.raises(OSError):  # noqa: PT011 - any
            call(connection)


def test_the_socket_is_its_users_alone(
    run: Callable[[Path], Listener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modes of file and folder ensure it, and what the kernel says of the other end."""
    listener = run(tmp_path / "identity")
    local, unused = offer_socket(listener), offer_socket(listener)
    path = Path(local.path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    true = os.geteuid()
    other = connect_local(local, WAIT_S)
    assert call(other) == b"to one"
    monkeypatch.setattr(unix_socket.os, "geteuid", lambda: true + 1)
    with pytest.raises(PermissionError, match=f"to user {true}"):
        unix_socket.check_owner(other)  # as a server and as a caller of another user would
    with pytest.raises(PermissionError, match=f"to user {true}"):
        connect_local(local, WAIT_S)
    with unix_socket.connect(path, WAIT_S) as connection:
        with contextlib.suppress(BrokenPipeError):  # it is closed already
            connection.sendall(unused.ticket)  # a good one, which does not help
        with pytest.raises(OSError):  # noqa: PT011 - the end or a reset
            call(connection)
    monkeypatch.undo()
    other.close()


def test_a_name_of_any_length_will_do(run: Callable[[Path], Listener], tmp_path: Path) -> None:
    place = tmp_path / ("long" * 50) / "identity"
    place.parent.mkdir()
    assert call(connect_local(offer_socket(run(place)), WAIT_S)) == b"to one"


def test_the_next_server_takes_the_place_of_the_former(
    run: Callable[[Path], Listener], tmp_path: Path
) -> None:
    """The former one was killed, or is still ending."""
    place = tmp_path / "identity"
    former = run(place)
    held = connect_local(offer_socket(former), WAIT_S)
    assert call(held) == b"to one"
    unused = offer_socket(former)
    later = run(place)
    assert unused.path == offer_socket(later).path
    with connect_local(unused, WAIT_S) as connection, pytest.raises(OSError):  # noqa: PT011 - any
        call(connection)
    former.close()
    assert call(connect_local(offer_socket(later), WAIT_S)) == b"to one"


def test_no_socket_where_others_come_in(
    run: Callable[[Path], Listener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of a mounted volume is an example; there is TLS in any case."""
    place = tmp_path / "identity"
    run(place).close()
    (place / "master").chmod(0o750)
    reply = run(place).offer(lambda: CALLER)
    assert reply.direct_port
    assert not reply.HasField("local")
    (place / "master").chmod(0o700)
    monkeypatch.delattr(socket, "SO_PEERCRED")
    assert not run(place).offer(lambda: CALLER).HasField("local")


def test_a_caller_without_a_ticket_does_not_stay(
    run: Callable[[Path], Listener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_listener, "_FIRST_CALL_S", 0.1)
    local = offer_socket(run(tmp_path / "identity"))
    with unix_socket.connect(Path(local.path), WAIT_S) as idle:
        assert idle.recv(1) == b""


def test_a_server_that_ends_leaves_no_socket(
    run: Callable[[Path], Listener], tmp_path: Path
) -> None:
    listener = run(tmp_path / "identity")
    path = Path(offer_socket(listener).path)
    assert path.exists()
    listener.close()
    assert not path.exists()
