"""Attacks on every port of a job that runs, counted: none passes, and the job trains on."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from conftest import Edl, HeldTraining, eventually
from counting import check, records_trained, train
from test_identity import listening

from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.identity.rules import RULES
from edl_proto.transport import channels
from edl_runtime.identity.folder import IdentityFolder
from edl_testing.fork_server import find_fork

TOTAL, EPOCHS = 6_011, 1
LONG_S = 200.0
MESSAGES = (b"", b"\xff" * 64, bytes(1 << 20))
"""An empty request, garbage, and a large one."""

TARGETS = (
    *("/", "/metrics", "/metrics/", "//metrics", "/METRICS", "/metrics?token=x", "/api/status"),
    *("/api/events", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2fspec.json"),
    *("/page/key", "/page/metrics-token", "/identity/authority.pem", "/master.json", "/%00"),
    *("/healthz/../api/status", "/healthz%2f..%2fapi/status", "/?token=", "/?token=%ff%fe"),
    *("/?token=" + "A" * 40, "/" + "a" * 60_000, "/?" + "token=x&" * 400, "http://127.0.0.1/"),
    *("*", "/;/api/status", "/api/../metrics", "/.git/config", "/proc/self/environ"),
)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer " + "0" * 36},
    {"Authorization": "Basic YTpi"},
    {"Cookie": "edl-page=" + "A" * 40},
    {"Cookie": 'edl-page="; Path=/'},
    {"Host": "evil.example"},
    {"Origin": "http://evil.example"},
    {"X-Forwarded-Host": "localhost", "X-Original-URL": "/api/status"},
)


def code_of(channel: grpc.Channel, method: str, message: bytes) -> grpc.StatusCode:
    call = channel.stream_stream(method)(iter([message]), timeout=LONG_S)
    with contextlib.suppress(grpc.RpcError):
        for _ in call:
            break
        else:
            return call.code()
        call.cancel()
        return grpc.StatusCode.OK  # something was answered
    return call.code()


def callers(
    edl: Edl, foreign: IdentityFolder
) -> Iterator[tuple[str, Role | None, Credentials | None]]:
    """Name, role in this job if any, and credentials."""
    own = IdentityFolder(edl.job_dir("w") / "identity", "w")
    yield "a caller without credentials", None, None
    for role, number in ((Role.CLIENT, None), (Role.WORKER, 1), (Role.MASTER, None)):
        yield f"another job's {role}", None, Credentials(foreign.provide(role, number))
    for role, number in ((Role.WORKER, 1), (Role.SERVER, 0), (Role.VIEWER, None)):
        yield str(role), role, Credentials(own.provide(role, number))
    yield "client", Role.CLIENT, Credentials(own.provide(Role.CLIENT))


def is_allowed(role: Role | None, method: str) -> bool:
    """Whether a caller of this role may make this call, if it names itself."""
    rule = RULES[method]
    return role in rule.roles and not (role is Role.WORKER and rule.own)  # it names number 0


def attack_grpc(edl: Edl, foreign: IdentityFolder, addresses: dict[str, Role]) -> Counter[str]:
    """Call every method at every port, as every caller who may not call it."""
    found: Counter[str] = Counter()
    for name, role, credentials in callers(edl, foreign):
        for address, peer in addresses.items():
            number = 0 if peer is Role.SERVER else None
            to = credentials.to(peer, number) if credentials is not None else None
            with channels.connect(address, to) as channel:
                for method in RULES:
                    if is_allowed(role, method):
                        continue
                    # A stranger does not come to send any.
                    for message in MESSAGES if role is not None else MESSAGES[:1]:
                        code = code_of(channel, method, message)
                        assert code is not grpc.StatusCode.OK, (name, method, message[:4])
                        found[code.name] += 1
    return found


def ask(port: int, verb: str, target: str, headers: dict[str, str]) -> int:
    """The status of an answer; 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
    with contextlib.closing(connection):
        try:
            connection.putrequest(verb, "/", skip_host="Host" in headers)
            # Past the checks of the library.
            connection._buffer[0] = f"{verb} {target} HTTP/1.1".encode("latin-1")  # type: ignore[attr-defined]  # private
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0


def attack_http(port: int) -> Counter[str]:
    """Paths, headers and verbs, without a link, a cookie or a token."""
    found: Counter[str] = Counter()
    for target in TARGETS:
        for headers in HEADERS:
            status = ask(port, "GET", target, headers)
            assert status not in range(200, 300), (target[:60], headers)
            found[str(status)] += 1
    for verb in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "HEAD", "X" * 99):
        for target in ("/", "/metrics", "/api/status"):
            status = ask(port, verb, target, {"Content-Length": "0"})
            assert status not in range(200, 300), (verb, target)
            found[str(status)] += 1
    # Hung up on before it is all sent, so there may be no answer.
    assert ask(port, "GET", "/metrics", {"X-Large": "a" * 300_000}) not in range(200, 300)
    found["large"] += 1
    return found


def attack_raw(port: int, opened: contextlib.ExitStack) -> Counter[str]:
    """Bytes that are no protocol; and connections that stay and say nothing, or half of it."""
    found: Counter[str] = Counter()
    for octets in (b"\0" * 4096, b"\xff" * 4096, b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\xff\xff"):
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", port), LONG_S) as one:
                with contextlib.suppress(OSError):
                    one.sendall(octets)
                    one.shutdown(socket.SHUT_WR)
                found["raw"] += 1
    for octets in (b"", b"G", b"\x16\x03"):
        for _ in range(8):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", port), LONG_S))
            one.sendall(octets)
            found["slow"] += 1
    return found


def test_no_attack_passes_and_no_record_is_lost(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "w", "--parameter-servers", "1", "--detach"),
    )
    eventually(
        lambda: records_trained(edl, "w") > 0 and len(edl.workers("w")) == 2, "both workers work"
    )
    foreign = IdentityFolder(tmp_path / "foreign", "w")  # of the same name, too
    foreign.create([(Role.MASTER, None)])
    facts = json.loads((edl.job_dir("w") / "master.json").read_bytes())
    (server,) = edl.written_status("w")["servers"]
    page = urlsplit(facts["dashboard_url"]).port
    assert page is not None
    workers = edl.workers("w")
    metrics = [port for pid in workers.values() for port in listening(find_fork(pid))]
    ports = [*(listening(facts["pid"]) - {page}), *listening(find_fork(server["pid"]))]

    counts: dict[str, Counter[str]] = {}
    addresses = {facts["address"]: Role.MASTER, server["address"]: Role.SERVER}
    # Before the silent connections, which would have these hung up on.
    for name, port in (("page", page), ("worker", metrics[0])):
        counts[name] = attack_http(port)
        assert "0" not in counts[name], "each was answered"
    with contextlib.ExitStack() as opened:
        counts["raw"] = Counter()
        for port in (*ports, *metrics):
            counts["raw"] += attack_raw(port, opened)
        counts["gRPC"] = attack_grpc(edl, foreign, addresses)
    print({name: dict(found) for name, found in counts.items()})
    assert sum(sum(found.values()) for found in counts.values()) >= 200

    eventually(lambda: edl.workers("w") == workers, "the same workers: none was displaced")
    held.release()
    assert edl("wait", "w").code == 0
    check(output, TOTAL, EPOCHS)
