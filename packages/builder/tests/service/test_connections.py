"""Connections that say nothing, or too much: how many there are, and for how long, is limited."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import zoos
from service_bench import DEADLINE_S, ZOO, Bench, build, serving, settings
from test_guard import AS_ANN, REFUSED_S, TOKENS, check_health

from edl_builder import server
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, GOAWAY = 4, 7
EMPTY_SETTINGS = bytes((0, 0, 0, SETTINGS, 0, 0, 0, 0, 0))
MAX_CONCURRENT_STREAMS = 3


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(replace(settings(tmp_path / "state"), access=TOKENS)) as found:
        yield found


def connect(bench: Bench) -> socket.socket:
    host, _, port = bench.app.address.rpartition(":")
    return socket.create_connection((host, int(port)), REFUSED_S)


def frames(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Type and content of each frame of HTTP/2 that comes, until the connection is closed."""
    with connection.makefile("rb") as stream:
        while len(head := stream.read(9)) == 9:
            yield head[3], stream.read(int.from_bytes(head[:3], "big"))


def test_a_connection_may_have_only_so_many_calls(bench: Bench) -> None:
    with connect(bench) as connection:
        connection.sendall(PREFACE + EMPTY_SETTINGS)
        content = next(content for kind, content in frames(connection) if kind == SETTINGS)
    told = dict(struct.iter_unpack(">HI", content))
    assert told[MAX_CONCURRENT_STREAMS] == 128


def test_a_connection_without_a_handshake_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC would do that after two minutes."""
    name = "grpc.server_handshake_timeout_ms"
    assert server.OPTIONS[name] <= 10_000
    monkeypatch.setitem(server.OPTIONS, name, server.OPTIONS[name] // 20)
    with serving(settings(tmp_path / "s")) as bench, connect(bench) as idle:
        while idle.recv(4096):
            pass


def test_a_connection_without_calls_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "grpc.max_connection_idle_ms"
    assert server.OPTIONS[name] <= 120_000
    monkeypatch.setitem(server.OPTIONS, name, server.OPTIONS[name] // 120)
    with serving(settings(tmp_path / "s")) as bench, connect(bench) as idle:
        idle.sendall(PREFACE + EMPTY_SETTINGS)
        assert GOAWAY in [kind for kind, _ in frames(idle)]


def test_connections_that_say_nothing_do_not_stop_the_service(bench: Bench) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000 if hard == resource.RLIM_INFINITY else min(10_000, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), hard))
    # Both ends are in this process.
    count = min(4096, (wanted - 1000) // 2)
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(count):
                opened.enter_context(connect(bench))
            check_health(bench)
            with bench.stub() as stub:
                assert build(stub, zoos.tar(ZOO), AS_ANN).status is grpc.StatusCode.OK
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


FEW_FILES = 64


def test_connections_do_not_take_all_files_of_a_service(tmp_path: Path) -> None:
    """Silent connections are closed when the time for their handshakes is over."""
    command = (
        "import resource, sys\n"
        "from edl_builder import server\n"
        "from edl_builder.__main__ import main\n"
        "server.OPTIONS['grpc.server_handshake_timeout_ms'] //= 10\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES}, {FEW_FILES}))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [
                *(sys.executable, "-c", command, "--listen", "127.0.0.1:0"),
                *("--state-dir", str(tmp_path / "state"), "--registry", "registry.test"),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not (found := re.search(r"127\.0\.0\.1:(\d+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            address = found[0]
            with contextlib.ExitStack() as opened:
                for _ in range(2 * FEW_FILES):
                    place = "127.0.0.1", int(found[1])
                    opened.enter_context(socket.create_connection(place, REFUSED_S))
                with grpc.insecure_channel(address) as channel:
                    stub = builder_pb2_grpc.BuilderStub(channel)
                    stub.List(pb.ListBuildsRequest(), timeout=DEADLINE_S, wait_for_ready=True)
        finally:
            process.kill()
    assert "File descriptor limit reached" not in log.read_text()
