"""The command log over real sockets: what servers receive, and who notices when one leaves."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from edl_master.core.identifiers import TaskKey, TaskType, Token, Version, WorkerId
from edl_master.core.parameters.commands import Command, CommitPush, FreezeVersion, KeepBestValues
from edl_master.metrics.instruments import Metrics
from edl_master.parameters.coordinator import Coordinator
from edl_master.server_group import command_codec
from edl_master.server_group.group import ParameterServerGroup
from edl_master.server_group.remote_stores import RemoteStores
from edl_master.servicers.coordinator import CoordinatorServicer
from edl_master.servicers.servers import ServersServicer
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, raw_calls
from edl_proto.transport.frames import Frames, Pieces
from edl_proto.transport.parameters import COORDINATOR, CoordinatorStub
from edl_proto.v1 import job_pb2, servers_pb2
from edl_runtime.identity.folder import IdentityFolder

LONG_S = 200.0
SERVERS = 2


class Master:
    """The command log of two servers, and clients of it.

    Args:
        way: how the servers receive it: over ``gRPC``, or directly: over ``TCP``, or in a secured
            job over ``TLS`` or a ``Unix socket``.
        place: an empty folder.

    Attributes:
        lost: the numbers of servers that were lost.
        over_grpc: whether each follower came over gRPC.
    """

    def __init__(self, way: str, place: Path) -> None:
        self.group = ParameterServerGroup(job_pb2.JobSpec(name="j"), SERVERS, "inc", {}, "")
        self.lost: queue.SimpleQueue[int] = queue.SimpleQueue()
        servers = ServersServicer(
            self.group, "inc", lambda number, how: self.lost.put(number), lambda error: None
        )
        coordinator = Coordinator(RemoteStores(self.group))
        no_reporter: Any = None
        self.over_grpc: list[bool] = []

        def follow(frames: Frames, call: Any) -> Pieces:
            self.over_grpc.append(isinstance(call, grpc.ServicerContext))
            return servers.follow(frames, call)

        servicer = CoordinatorServicer(coordinator, no_reporter, Metrics(), "inc", follow)
        errors = ErrorInterceptor(lambda error: None, lambda *_: None)
        self._identities = access_control = None
        if way in ("TLS", "Unix socket"):
            self._identities = IdentityFolder(place / "identity", "w")
            numbers = [(Role.SERVER, number) for number in range(SERVERS + 1)]
            self._identities.create([(Role.MASTER, None), *numbers])
            access_control = AccessControl(Credentials(self._identities.file(Role.MASTER)))
        interceptors = [access_control.interceptor] if access_control else []
        self._server = grpc.server(
            futures.ThreadPoolExecutor(8),
            interceptors=[*interceptors, errors],
            options=channels.SERVER_OPTIONS,
        )
        self._listener = raw_calls.listen(
            COORDINATOR, servicer, "127.0.0.1", errors.translate, 0, access_control
        )
        offered = self._listener if way != "gRPC" else None
        raw_calls.add_to_server(COORDINATOR, servicer, self._server, offered)
        port = channels.add_port(self._server, "127.0.0.1:0", access_control)
        # A name instead of the address that is listened on: the caller may be far away.
        self._address = f"{'localhost' if way == 'TLS' else '127.0.0.1'}:{port}"
        self._server.start()
        self._channels: dict[int, grpc.Channel] = {}

    def follow(self, number: int, incarnation: str = "inc") -> Any:
        """Return the entries for a server."""
        peer = None
        if self._identities is not None:
            credentials = Credentials(self._identities.file(Role.SERVER, number))
            peer = credentials.to(Role.MASTER)
        self._channels[number] = channels.connect(self._address, peer)
        stub = CoordinatorStub(self._channels[number], self._address, peer)
        address = f"server-{number}"
        request = servers_pb2.FollowRequest(server=number, incarnation=incarnation, address=address)
        return stub.follow(request)

    def leave(self, number: int, entries: Any) -> None:
        """End a server."""
        entries.close()
        self._channels[number].close()

    def break_off(self) -> None:
        """End the master."""
        self._server.stop(None).wait()
        self._listener.close()

    def close(self) -> None:
        self.group.close()
        for channel in self._channels.values():
            channel.close()
        self.break_off()


@pytest.fixture(params=["gRPC", "TCP", "TLS", "Unix socket"])
def master(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    monkeypatch.setattr(raw_calls, "_CONNECT_S", LONG_S)
    master = Master(request.param, tmp_path)
    yield master
    master.close()
    assert set(master.over_grpc) == {request.param == "gRPC"}


def a_command(number: int) -> Command:
    match number % 3:
        case 0:
            return FreezeVersion("f" * number)
        case 1:
            return KeepBestValues()
        case _:
            task = TaskKey(TaskType.TRAINING, 0, number)
            return CommitPush(task, Token(1), number, 1, Version(number), 2, (0.5,), WorkerId(3))


def test_every_server_receives_the_whole_log_in_its_order(master: Master) -> None:
    """Whether commands were appended before it connected or come later; it ends with the log."""
    commands = [a_command(number) for number in range(9)]
    for command in commands[:4]:
        master.group.log.append(command)
    followed = [master.follow(number) for number in range(SERVERS)]
    received = [[next(entries) for _ in range(3)] for entries in followed]
    for command in commands[4:]:
        master.group.log.append(command)
    master.group.close()
    for one, entries in zip(received, followed, strict=True):
        one.extend(entries)
        assert [entry.index for entry in one] == [*range(1, len(commands) + 1)]
        assert [command_codec.command_from(entry) for entry in one] == commands
    assert master.lost.empty(), "they have left after the end"


def test_a_server_that_leaves_before_the_end_is_lost(master: Master) -> None:
    master.group.log.append(KeepBestValues())
    others, entries = master.follow(0), master.follow(1)
    assert next(others).index == next(entries).index == 1
    master.leave(1, entries)
    assert master.lost.get(timeout=LONG_S) == 1
    assert master.lost.empty(), "the other one is still there"


def test_who_is_refused_is_not_lost(master: Master) -> None:
    """Else the second of two would end the job."""
    master.group.log.append(KeepBestValues())
    entries = master.follow(0)
    next(entries)
    for number, incarnation, expected in (
        (0, "inc", ErrorCode.USAGE),
        (SERVERS, "inc", ErrorCode.USAGE),
        (1, "former", ErrorCode.STALE_INCARNATION),
    ):
        with pytest.raises(grpc.RpcError) as failed:
            next(master.follow(number, incarnation))
        error = EdlError.from_rpc(failed.value)
        assert error is not None
        assert error.code == expected
    assert master.lost.empty()
    assert master.group.addresses() == {0: "server-0"}


def test_a_log_that_breaks_off_is_no_end(master: Master) -> None:
    """A server that took it for one would leave with exit code 0."""
    master.group.log.append(KeepBestValues())
    entries = master.follow(0)
    next(entries)
    master.break_off()
    with pytest.raises(grpc.RpcError):
        next(entries)


def test_a_server_waits_for_a_master_that_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls of workers are repeated, but this one is made once."""
    monkeypatch.setattr(raw_calls, "_CONNECT_S", 0.0)
    master = Master("gRPC", tmp_path)
    master.group.log.append(KeepBestValues())
    assert next(master.follow(0)).index == 1
    master.close()
