"""A job in containers is closed: to other containers, to other users, and to its own workers.

One job, with every way in that its ports and its files could offer. The containers of jobs share
the machine's network, so a container of somebody else is as near to the ports as it can be.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import Edl, eventually
from google.protobuf import message_factory
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity import rules
from edl_proto.identity.credentials import Peer
from edl_proto.identity.names import Identity, Role
from edl_proto.transport import channels
from edl_proto.transport.parameters import COORDINATOR, SHARD
from edl_proto.transport.raw_calls import RawService, RawStub, first_frame
from edl_proto.v1 import job_pb2, parameters_pb2, servers_pb2, task_pb2
from edl_runtime.identity.folder import IdentityFolder

from .closed_job import Closed
from .docker_environment import DockerEnvironment, exec_output

WAIT_S = 200.0
NOBODY = 65534

IN_A_WORKER = """
import json, os, sys
import grpc
from pathlib import Path
from edl_proto.errors import EdlError
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc, task_pb2, task_pb2_grpc

address, folder = sys.argv[1], Path(sys.argv[2])
found = {"sees": sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))}
(own,) = folder.glob("*/identity.pem")
number = int(own.parent.name.rpartition("-")[2])
try:
    own.write_bytes(own.read_bytes())
    found["writes"] = "written"
except OSError as error:
    found["writes"] = error.strerror
peer = Credentials(own).to(Role.MASTER)
with channels.connect(address, peer) as channel:
    tasks, job = task_pb2_grpc.TasksStub(channel), job_pb2_grpc.JobStub(channel)
    other = task_pb2.LeaseRequest(worker_id=1 - number)
    for name, call in {
        "another's lease": lambda: tasks.Lease(other, timeout=200),
        "stop": lambda: job.Stop(job_pb2.StopRequest(reason="me"), timeout=200),
        "scale": lambda: job.Scale(job_pb2.ScaleRequest(), timeout=200),
        "status": lambda: job.GetStatus(job_pb2.GetStatusRequest(), timeout=200),
    }.items():
        try:
            call()
            found[name] = "answered"
        except grpc.RpcError as error:
            known = EdlError.from_rpc(error)
            found[name] = known.code if known else str(error.code())
print(json.dumps(found))
"""
"""What a hostile worker tries, with all that its container has."""

IN_ANOTHER_CONTAINER = """
import json, socket, ssl, sys

def answer(port, secured):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection(("127.0.0.1", port), 200) as connection:
            if secured:
                connection = context.wrap_socket(connection)
            connection.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(9))
            said = b""
            while piece := connection.recv(4096):
                said += piece
            return said.decode("latin-1")
    except ConnectionRefusedError:
        return "nobody listens"
    except OSError:
        return ""

print(json.dumps([answer(int(p), s) for p in sys.argv[1:] for s in (False, True)]))
"""
"""Whoever has no certificate: in the clear, and with TLS. An alert of TLS says nothing."""


@pytest.fixture
def closed(
    job_docker_env: DockerEnvironment, in_containers: Edl, tmp_path: Path
) -> Iterator[Closed]:
    edl, zoo = in_containers, tmp_path / "circle"
    edl("zoo", "init", str(zoo))
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "circle", "--name", "closed"),
        *("--data", f"{zoo}/data/train.recordio", "--num-epochs", "100000", "--detach"),
        *("--output", str(tmp_path / "results" / "model"), "--keep-page", "0s"),
        *("--num-workers", "2", "--parameter-servers", "1"),
    )
    other = IdentityFolder(tmp_path / "other", "closed")  # a job of the same name, even
    other.create([(Role.CLIENT, None)])
    found = Closed(edl, job_docker_env, other)
    try:
        eventually(lambda: found.steps() > 20, "the job at work")
        eventually(lambda: len(edl.workers("closed")) == 2, "both workers")
        yield found
    finally:
        edl("stop", "closed", "--now")
        edl("delete", "closed", "--yes")


def test_a_job_in_containers_is_closed_to_everybody_else(closed: Closed) -> None:
    refused: Counter[str] = Counter()
    check_files(closed, refused)
    check_another_container(closed, refused)
    check_workers(closed, refused)
    check_all_methods(closed, refused)
    check_direct_connections(closed, refused)
    assert refused == {
        "files": 15,
        "without an identity": 16,
        "workers": 10,
        "methods of the master": 242,
        "methods of the server": 82,
        "direct": 2,
    }
    check_renewal(closed)
    # The user's own command is let in, after all of this.
    edl = closed.edl
    assert edl("top", "closed").out
    edl("scale", "closed", "--workers", "1")
    eventually(lambda: len(closed.containers("worker")) == 1, "one worker to be left")
    assert edl("stop", "closed", "-o", "json").json["state"] == "CANCELLED"
    assert "records/s" in edl("logs", "closed", "--tail", "200").out


def keys(closed: Closed) -> list[bytes]:
    """A line of every private key of the job."""
    paths = list((closed.place / "identity").rglob("*.pem"))
    assert len(paths) == 7  # authority, master, client, viewer, two workers, server
    return [path.read_bytes().splitlines()[1] for path in paths]


def check_files(closed: Closed, refused: Counter[str]) -> None:
    """What containers see of the keys, and what other users of the machine do."""
    folder = closed.place / "identity"
    (master,) = closed.containers("master")
    workers = closed.containers("worker")
    seen = [*workers, master]
    assert [mounted(each, folder) for each in seen] == [
        {f"{folder}/worker-0": False},
        {f"{folder}/worker-1": False},
        {str(folder): False, f"{folder}/master": False, f"{folder}/server-0": False},
    ]
    said = exec_output(master, ["find", str(folder), "-type", "f"]).split()
    assert sorted(said) == [f"{folder}/{name}/identity.pem" for name in ("master", "server-0")]
    tried = master.exec_run(["sh", "-c", f"cd {folder} && echo x > master/x; rm -r ../identity"])
    assert tried.exit_code != 0
    assert (folder / "authority.pem").exists()

    # Nowhere but in the files of the identities.
    texts = [json.dumps(each.attrs).encode() for each in seen]
    texts += [path.read_bytes() for path in closed.place.glob("*.json*")]
    texts += [path.read_bytes() for path in (closed.place / "logs").iterdir()]
    for each in seen:
        pid = each.attrs["State"]["Pid"]
        texts += [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    assert all(b"PRIVATE KEY" not in text for text in texts)
    assert not [key for key in keys(closed) for text in texts if key in text]

    refused["files"] += unreadable(closed.place, folder, *sorted(folder.rglob("*")))


def unreadable(*places: Path) -> int:
    """How many of these files and folders another user of the machine cannot read."""
    opened = [os.open(place, os.O_PATH) for place in (Path(__file__), *places)]
    try:
        # By their numbers: who stands in front of each, past all folders above it.
        done = subprocess.run(
            ["head", "-c", "9", *(f"/proc/self/fd/{number}" for number in opened)],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            pass_fds=opened,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        for number in opened:
            os.close(number)
    assert done.stdout.count("==>") == 1, "this file can be read by all, and nothing else"
    return done.stderr.count("Permission denied")


def mounted(container: Any, folder: Path) -> dict[str, bool]:
    """Places at or below a folder that a container sees, and whether it may write there."""
    found = container.attrs["HostConfig"]["Mounts"]
    return {
        each["Target"]: not each.get("ReadOnly", False)
        for each in found
        if f"{each['Target']}/".startswith(f"{folder}/")
    }


def direct_port(closed: Closed, service: RawService, address: str, to: Role) -> int:
    worker = closed.as_(Role.WORKER, 0, to, closed.identities)
    with channels.connect(address, worker) as channel:
        ask: Any = channel.unary_unary(service.path("Open"))
        return int(parameters_pb2.OpenReply.FromString(ask(b"", timeout=WAIT_S)).direct_port)


def check_another_container(closed: Closed, refused: Counter[str]) -> None:
    """In the same network, without an identity: at each port, as each user."""
    ports = [int(address.rpartition(":")[2]) for address in (closed.address, closed.server)]
    ports.append(direct_port(closed, COORDINATOR, closed.address, Role.MASTER))
    ports.append(direct_port(closed, SHARD, closed.server, Role.SERVER))
    client = closed.docker_env.client()
    with contextlib.closing(client):
        for user in ("0:0", f"{NOBODY}:{NOBODY}"):
            said = client.containers.run(
                closed.docker_env.bare,
                ["python3", "-c", IN_ANOTHER_CONTAINER, *map(str, ports)],
                user=user,
                network_mode="host",
                remove=True,
            )
            answers = json.loads(said)
            assert len(answers) == 2 * len(ports)
            # In the clear there is at most an alert of TLS (its first octet is 21).
            assert all(answer == "" or answer[0] == "\x15" for answer in answers), answers
            refused["without an identity"] += len(answers)


def check_workers(closed: Closed, refused: Counter[str]) -> None:
    """Code in a worker's container has that worker's identity, and no more."""
    folder = closed.place / "identity"
    for number, worker in enumerate(closed.containers("worker")):
        done = worker.exec_run(
            ["python3", "-P", "-c", IN_A_WORKER, closed.address, str(folder)], demux=True
        )
        assert done.exit_code == 0, done
        assert json.loads(done.output[0]) == {
            "sees": [f"worker-{number}", f"worker-{number}/identity.pem"],
            "writes": "Read-only file system",
            **dict.fromkeys(("another's lease", "stop", "scale", "status"), ErrorCode.FORBIDDEN),
        }
        refused["workers"] += 5


def callers(closed: Closed, to: Role) -> Iterator[tuple[Identity | None, Peer | None]]:
    """Everybody who could call, with what proves it; None for who has no name in the job."""
    for role in (Role.MASTER, Role.CLIENT, Role.VIEWER):
        yield Identity("closed", role), closed.as_(role, None, to, closed.identities)
    for role in (Role.SERVER, Role.WORKER):
        for number in (0, 1):
            identity = Identity("closed", role, number)
            yield identity, closed.as_(role, number, to, closed.identities)
    yield None, None
    yield None, closed.as_(Role.CLIENT, None, to, closed.other)
    yield None, closed.as_(Role.WORKER, 0, to, closed.other)


def check_all_methods(closed: Closed, refused: Counter[str]) -> None:
    """Every method of every gRPC port, by everybody who may not call it, for number 7."""
    client = closed.as_(Role.CLIENT, None, Role.MASTER, closed.identities)
    with channels.connect(closed.address, client) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([ask]), timeout=WAIT_S)
    of_master = {service.name for service in answer.list_services_response.service}
    for to, address, served in (
        (Role.MASTER, closed.address, of_master),
        (Role.SERVER, closed.server, {SHARD.name, health.SERVICE_NAME}),
    ):
        methods = [path for path in rules.RULES if path.split("/")[1] in served]
        assert {path.split("/")[1] for path in methods} == served, "a service without rules"
        for identity, peer in callers(closed, to):
            with channels.connect(address, peer) as channel:
                for path in methods:
                    rule = rules.RULES[path]
                    if identity is not None and identity.role in rule.roles and not rule.own:
                        continue  # may call it
                    assert code_of(channel, path) in expected(identity), (path, identity)
                    refused[f"methods of the {to}"] += 1


def expected(identity: Identity | None) -> set[Any]:
    """How a caller is refused."""
    if identity is None or identity.role is Role.MASTER:
        return {grpc.StatusCode.UNAVAILABLE}  # in the handshake; a master calls nobody
    return {ErrorCode.FORBIDDEN}


def code_of(channel: grpc.Channel, path: str) -> Any:
    # All requests have the number of their caller in a field of their own.
    field = rules.RULES[path].own
    request = b""
    if field:
        kind: Any = rules.RULES[path].header or message_of(path)
        request = kind(**{field: 7}).SerializeToString()
    call: Any = channel.unary_unary(path)
    try:
        call(request, timeout=WAIT_S)
    except grpc.RpcError as error:
        known = EdlError.from_rpc(error)
        return known.code if known is not None else error.code()
    return "answered"


def message_of(path: str) -> Any:
    """The request of a method of messages."""
    _, service, method = path.split("/")
    for module in (job_pb2, servers_pb2, task_pb2):
        known: Any = module.DESCRIPTOR.services_by_name.get(service.rpartition(".")[2])
        if known is not None:
            return message_factory.GetMessageClass(known.methods_by_name[method].input_type)
    raise AssertionError(path)


def check_direct_connections(closed: Closed, refused: Counter[str]) -> None:
    """Over a connection that worker 1 may open, it says that it is worker 0."""
    for service, address, to, name, header in (
        (SHARD, closed.server, Role.SERVER, "Prepare", parameters_pb2.PrepareHeader(worker_id=0)),
        (COORDINATOR, closed.address, Role.MASTER, "Commit", parameters_pb2.CommitRequest()),
    ):
        peer = closed.as_(Role.WORKER, 1, to, closed.identities)
        with channels.connect(address, peer) as channel:
            stub = RawStub(service, channel, address, peer)
            try:
                with (
                    pytest.raises(grpc.RpcError) as caught,
                    stub.call(name, header, (), WAIT_S) as frames,
                ):
                    first_frame(frames)
            finally:
                stub.close()
        error = EdlError.from_rpc(caught.value)
        assert error is not None
        assert error.code == ErrorCode.FORBIDDEN
        refused["direct"] += 1


def check_renewal(closed: Closed) -> None:
    """What is signed again outside is what the containers have, and the job goes on with it."""
    identities = closed.identities
    (master,) = closed.containers("master")
    worker = closed.containers("worker")[1]
    for container, path in (
        (master, identities.file(Role.MASTER)),
        (master, identities.file(Role.SERVER, 0)),
        (worker, identities.file(Role.WORKER, 1)),
    ):
        before = path.read_bytes()
        role, _, number = path.parent.name.partition("-")
        identities._sign([Identity("closed", Role(role), int(number) if number else None)])
        assert path.read_bytes() != before
        said = exec_output(container, ["sha256sum", str(path)]).split()[0]
        assert said == hashlib.sha256(path.read_bytes()).hexdigest()
    # New connections in all directions: that worker's container is replaced.
    worker.kill()
    steps = closed.steps()
    eventually(
        lambda: (
            len(closed.containers("worker")) == 2
            and worker.name not in {each.name for each in closed.containers("worker")}
            and len(closed.edl.workers("closed")) == 2
        ),
        "another container in its place",
    )
    eventually(lambda: closed.steps() > steps + 20, "more steps")
