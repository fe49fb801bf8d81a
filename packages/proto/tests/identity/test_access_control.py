"""Who gets in at the two ports of a process, over real connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, parameters, raw_calls
from edl_proto.transport import listener as direct_listener
from edl_proto.transport.endpoints import connect_tcp
from edl_proto.v1 import job_pb2, job_pb2_grpc, task_pb2, task_pb2_grpc
from edl_proto.v1 import parameters_pb2 as pb
from edl_runtime.identity.folder import IdentityFolder

WAIT_S = 200.0
ALL = (Role.MASTER, None), (Role.WORKER, 0), (Role.CLIENT, None)


class Parameters:
    """Tells who was let in."""

    def pull(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        next(frames)
        yield pb.PullReply(version=3).SerializeToString()

    initialize = put_values = push = put_rows = scan_rows = pull


class Tasks(task_pb2_grpc.TasksServicer):
    def Lease(self, request: Any, context: Any) -> task_pb2.LeaseReply:
        return task_pb2.LeaseReply(log_index=1)


class Job(job_pb2_grpc.JobServicer):
    def Stop(self, request: Any, context: Any) -> job_pb2.StopReply:
        return job_pb2.StopReply()


class Master:
    """Both ports of a job's master, with all that a process of the job needs."""

    def __init__(self, place: Path, job: str = "w") -> None:
        self.identities = IdentityFolder(place / f"identity-{job}", job)
        self.identities.create([(Role.MASTER, None), (Role.SERVER, 0)])
        self.job, self.tasks = Job(), Tasks()

    def open(self, role: Role = Role.MASTER, number: int | None = None) -> None:
        own = AccessControl(Credentials(self.identities.file(role, number)))
        self.server = grpc.server(
            futures.ThreadPoolExecutor(8),
            interceptors=[own.interceptor, ErrorInterceptor()],
            options=channels.SERVER_OPTIONS,
        )
        task_pb2_grpc.add_TasksServicer_to_server(self.tasks, self.server)
        job_pb2_grpc.add_JobServicer_to_server(self.job, self.server)
        self.listener = raw_calls.listen(
            parameters.PARAMETERS, Parameters(), "127.0.0.1", ErrorInterceptor().translate, 0, own
        )
        raw_calls.add_to_server(parameters.PARAMETERS, Parameters(), self.server, self.listener)
        self.address = f"127.0.0.1:{channels.add_port(self.server, '127.0.0.1:0', own)}"
        self.server.start()

    def close(self) -> None:
        self.listener.close()
        self.server.stop(None).wait()

    def credentials(self, role: Role, number: int | None = None) -> Credentials:
        return Credentials(self.identities.provide(role, number))

    def seen_by(self, role: Role, number: int | None = None) -> Peer:
        return self.credentials(role, number).to(Role.MASTER)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path)
    master.open()
    yield master
    master.close()


def lease(master: Master, peer: Peer | None, worker: int = 0) -> int:
    with channels.connect(master.address, peer) as channel:
        request = task_pb2.LeaseRequest(worker_id=worker)
        return int(task_pb2_grpc.TasksStub(channel).Lease(request, timeout=WAIT_S).log_index)


WAYS = {"local": "127.0.0.1", "TLS": "localhost", "gRPC": ""}
"""How a worker names its master: by the address of the listener, it is on the same machine."""


def pull(master: Master, peer: Peer, worker: int, way: str = "local") -> int:
    port = master.address.rpartition(":")[2]
    with channels.connect(master.address, peer) as channel:
        stub = parameters.ParametersStub(channel, WAYS[way] and f"{WAYS[way]}:{port}", peer)
        try:
            return int(stub.pull(pb.PullHeader(worker_id=worker), bytearray, WAIT_S).version)
        finally:
            stub.close()


def is_refusal(error: grpc.RpcError) -> bool:
    known = EdlError.from_rpc(error)
    return known is not None and known.code == ErrorCode.FORBIDDEN


def test_a_first_call_of_a_closed_channel_is_an_error_and_no_crash(master: Master) -> None:
    channel = channels.connect(master.address, master.seen_by(Role.WORKER, 2))
    stub = task_pb2_grpc.TasksStub(channel)
    channel.close()
    with pytest.raises(ValueError, match="closed channel"):
        stub.Lease(task_pb2.LeaseRequest(worker_id=2), timeout=WAIT_S)


def test_a_worker_calls_for_itself_alone(master: Master) -> None:
    peer = master.seen_by(Role.WORKER, 2)
    assert lease(master, peer, worker=2) == 1
    with pytest.raises(grpc.RpcError) as caught:
        lease(master, peer, worker=3)
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert is_refusal(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_parameters_are_as_guarded_on_all_ways(
    master: Master, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def noting(name: str, connect: Callable[..., socket.socket]) -> Callable[..., socket.socket]:
        return lambda *args: (taken.append(name), connect(*args))[1]

    for name, which in (("local", "connect_local"), ("TLS", "connect_tcp")):
        monkeypatch.setattr(raw_calls, which, noting(name, getattr(raw_calls, which)))
    peer = master.seen_by(Role.WORKER, 2)
    assert pull(master, peer, 2, way) == 3
    assert taken == ([] if way == "gRPC" else [way])
    for other, worker in ((peer, 3), (master.seen_by(Role.CLIENT), 0)):
        with pytest.raises(grpc.RpcError) as caught:
            pull(master, other, worker, way)
        assert is_refusal(caught.value)


def test_a_viewer_cannot_stop_a_job(master: Master) -> None:
    for role, may in ((Role.CLIENT, True), (Role.VIEWER, False)):
        with channels.connect(master.address, master.seen_by(role)) as channel:
            stop = job_pb2_grpc.JobStub(channel).Stop
            if may:
                stop(job_pb2.StopRequest(), timeout=WAIT_S)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                stop(job_pb2.StopRequest(), timeout=WAIT_S)
            assert is_refusal(caught.value)


def test_no_other_caller_gets_in(master: Master, tmp_path: Path) -> None:
    """Neither without a certificate, nor with that of another job."""
    stranger = Master(tmp_path, "v").seen_by(Role.WORKER, 0)
    for peer in (None, stranger):
        with pytest.raises(grpc.RpcError) as caught:
            lease(master, peer)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_no_other_caller_gets_in_at_the_direct_port(master: Master, tmp_path: Path) -> None:
    port = master.listener.port
    stranger = Master(tmp_path, "v").seen_by(Role.WORKER, 0)
    with pytest.raises(OSError, match="certificate verify failed"):
        connect_tcp("127.0.0.1", port, WAIT_S, stranger)
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_S) as plain,
        contextlib.suppress(ConnectionResetError),
    ):
        plain.sendall(b"edl\x01" + bytes(16))
        assert b"edl" not in plain.recv(64)
    assert anonymous_answer(port) == b""
    assert pull(master, master.seen_by(Role.WORKER, 0), 0) == 3


def anonymous_answer(port: int) -> bytes:
    """Return the answer to a caller without a certificate, which accepts any server."""
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain:
        try:
            secured = anonymous.wrap_socket(plain)
            secured.sendall(b"edl\x01" + bytes(16))
            return secured.recv(1)
        except OSError:
            return b""


@pytest.mark.parametrize("role", [Role.SERVER, Role.WORKER, Role.CLIENT])
def test_a_false_master_learns_nothing(tmp_path: Path, role: Role) -> None:
    """A worker of the same job that listens in the master's place, or a stranger."""
    master = Master(tmp_path)
    number = 0 if role.is_numbered else None
    master.identities.provide(role, number)
    master.open(role, number)
    try:
        peer = master.seen_by(Role.WORKER, 1)
        with pytest.raises(grpc.RpcError) as caught:
            lease(master, peer, worker=1)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ssl.SSLError):
            connect_tcp("127.0.0.1", master.listener.port, WAIT_S, peer)
    finally:
        master.close()


def test_what_travels_is_encrypted_with_the_newest_tls(master: Master) -> None:
    peer = master.seen_by(Role.WORKER, 0)
    context = peer.credentials.client_context
    with (
        socket.create_connection(("127.0.0.1", master.listener.port), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=peer.host) as secured,
    ):
        assert secured.version() == "TLSv1.3"
    context.maximum_version = context.minimum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):  # noqa: PT011  (of whatever kind)
        connect_tcp("127.0.0.1", master.listener.port, WAIT_S, peer)


def test_a_caller_that_says_nothing_does_not_stay(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_listener, "_FIRST_CALL_S", 0.1)
    address = "127.0.0.1", master.listener.port
    with socket.create_connection(address, 200 * direct_listener._FIRST_CALL_S) as idle:
        assert idle.recv(1) == b""
