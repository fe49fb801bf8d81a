"""What runs in a pod beside a job: tries every port of its pods, and prints how far it came.

The arguments are pairs of a pod's address and the name that it proves. The pod has the identity of
worker 1; as any other caller it only guesses.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import grpc

from edl_kubernetes.cluster import objects
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Identity, Role
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc, task_pb2, task_pb2_grpc
from edl_runtime.identity.authority import Authority

PORTS = (objects.MASTER_PORT, objects.STREAM_PORT)
JOB = "counting"
PATIENCE_S = 200.0
WELCOME_S = 3.0
"""A direct port waits for a call: so long without a refusal means to be let in."""


def make_trusting_context() -> ssl.SSLContext:
    """Return the context of a caller without a certificate who trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def foreign() -> ssl.SSLContext:
    """A caller with worker 0's name, but of another job's authority."""
    context = make_trusting_context()
    with tempfile.NamedTemporaryFile() as file:
        identity = Identity(JOB, Role.WORKER, 0)
        file.write(Authority.create(JOB).issue(identity))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def gets_in(address: str, port: int, host: str, context: ssl.SSLContext, wait_s: float) -> bool:
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((address, port), PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as connection:
                connection.settimeout(wait_s)
                return connection.recv(1) != b""  # gRPC speaks first
        except TimeoutError:
            return True
        except OSError:
            return False


def answers_plain_text(address: str, port: int) -> bool:
    """Tell whether a port answers a caller who does not encrypt."""
    with socket.create_connection((address, port), PATIENCE_S) as plain:
        try:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            answer = b""
            while part := plain.recv(1 << 10):
                answer += part
        except OSError:
            pass
    return answer != b"" and answer[0] != 0x15  # an alert of TLS


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as failure:
        error = EdlError.from_rpc(failure)
        return ErrorCode.Name(error.code) if error is not None else str(failure.code())
    return "OK"


def main() -> None:
    path = Path(objects.IDENTITY_DIRECTORY, objects.IDENTITY_FILE)
    own = Credentials(path)
    seen: dict[str, object] = {"files": [each.name for each in path.parent.glob("*.pem")]}
    for address, host in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        for port in PORTS:
            seen[f"{host}:{port}"] = {
                "plain": answers_plain_text(address, port),
                "anonymous": gets_in(address, port, host, make_trusting_context(), PATIENCE_S),
                "foreign": gets_in(address, port, host, foreign(), PATIENCE_S),
                "worker 1": gets_in(address, port, host, own.client_context, WELCOME_S),
            }
    master = f"{sys.argv[1]}:{objects.MASTER_PORT}"
    with channels.connect(master, own.to(Role.MASTER)) as channel:
        tasks = task_pb2_grpc.TasksStub(channel)
        job = job_pb2_grpc.JobStub(channel)
        for number in (0, 1):
            request = task_pb2.LeaseRequest(worker_id=number)
            seen[f"lease of {number}"] = outcome(partial(tasks.Lease, request, timeout=PATIENCE_S))
        seen["stop"] = outcome(
            lambda: job.Stop(job_pb2.StopRequest(reason="an intruder"), timeout=PATIENCE_S)
        )
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
