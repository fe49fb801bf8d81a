"""The same limits as in ``test_guard``, asked so that one that is missing is seen at once.

There, a call that should be refused and is let in would wait until the test gives up. Here it gets
an answer, or a message of it is read, and the test fails in that moment.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import pytest
import zoos
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service_bench import (
    ANN,
    DEADLINE_S,
    ZOO,
    Bench,
    requests,
    serving,
    settings,
    spec_of,
)
from test_guard import AS_ANN, TOKENS, check_health

from edl_builder import server
from edl_builder.config.access import Access, Token, hash_token
from edl_builder.core.build import BuildLimits
from edl_builder.core.identifiers import Caller
from edl_builder.core.open_calls import OpenCallLimits, OpenCalls
from edl_builder.servicers.authentication import Authenticator
from edl_builder.servicers.guard import Guard
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

STATUS = grpc.StatusCode
LIST = reflection_pb2.ServerReflectionRequest(list_services="")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(replace(settings(tmp_path / "state"), access=TOKENS)) as found:
        yield found


class Aborted(Exception):
    """A call was ended with this status."""


class Context:
    """A call of a stranger."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer eve"),)

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def code(self) -> None:
        return None

    def is_active(self) -> bool:
        return True

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Aborted(code)


def never(*_: object) -> NoReturn:
    raise AssertionError("the method of a stranger was called")


@pytest.mark.parametrize(
    "make",
    [
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_unary_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    ],
)
def test_a_stranger_is_refused_before_a_message_is_read(make: Callable[..., Any]) -> None:
    def messages() -> Iterator[bytes]:
        pytest.fail("a message of a stranger was read")
        yield b""

    limits = OpenCallLimits(all_callers=9, per_caller=9, per_method=9)
    guard = Guard(Authenticator(lambda: TOKENS), OpenCalls(limits), lambda record: None)
    handler = guard.intercept_service(
        lambda details: make(never), SimpleNamespace(method="/edl.v1.Builder/Any")
    )
    with pytest.raises(Aborted) as refused:
        next(handler.stream_stream(messages(), Context()))
    assert refused.value.args == (STATUS.UNAUTHENTICATED,)


def test_health_is_served_by_threads_that_serve_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, names = health.HealthServicer.Check, set[str]()

    def noting(self: Any, request: Any, context: Any) -> Any:
        names.add(threading.current_thread().name.rpartition("_")[0])
        return check(self, request, context)

    monkeypatch.setattr(health.HealthServicer, "Check", noting)
    with serving(replace(settings(tmp_path / "state"), access=TOKENS)) as bench:
        check_health(bench)
        with bench.stub() as stub:
            stub.List(pb.ListBuildsRequest(), metadata=AS_ANN, timeout=DEADLINE_S)
    assert names == {"health"}


def refusal(call: Iterator[Any]) -> str:
    """Why a call is refused; its first answer, if it is not, fails the test."""
    with pytest.raises(grpc.RpcError) as refused:
        next(call)
    assert refused.value.code() is STATUS.RESOURCE_EXHAUSTED
    return refused.value.details() or ""


def test_a_tenant_has_so_many_calls_of_one_method(bench: Bench) -> None:
    bench.engine.hold.set()
    archive = zoos.tar(ZOO)
    with bench.stub() as stub:
        building = stub.Build(requests(spec_of(archive), archive), metadata=AS_ANN)
        asked = pb.WatchBuildRequest(id=next(building).status.id)
        watching = [stub.Watch(asked, metadata=AS_ANN, timeout=DEADLINE_S) for _ in range(32)]
        for call in watching:
            next(call)  # it is in
        more = stub.Watch(asked, metadata=AS_ANN, timeout=DEADLINE_S)
        assert "32 of your calls to Watch are open; the limit is 32" in refusal(more)
        for call in (*watching, building):
            call.cancel()
    bench.engine.hold.clear()


@contextlib.contextmanager
def reflecting(
    channel: grpc.Channel, who: tuple[tuple[str, str], ...], count: int
) -> Iterator[None]:
    """So many calls that were let in, and go on."""
    over = threading.Event()

    def one_message() -> Iterator[Any]:
        yield LIST
        over.wait(DEADLINE_S)

    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    calls = [stub.ServerReflectionInfo(one_message(), metadata=who) for _ in range(count)]
    try:
        for call in calls:
            next(call)
        yield
    finally:
        over.set()
        for call in calls:
            call.cancel()


def test_a_tenant_has_so_many_calls_of_reflection(bench: Bench) -> None:
    with grpc.insecure_channel(bench.app.address) as channel, reflecting(channel, AS_ANN, 4):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        more = stub.ServerReflectionInfo(iter([LIST]), metadata=AS_ANN, timeout=DEADLINE_S)
        assert "4 of your calls to ServerReflectionInfo are open" in refusal(more)


def test_all_tenants_together_have_so_many_calls(tmp_path: Path) -> None:
    tenants = [replace(ANN, name=Caller(f"tenant-{number}")) for number in range(18)]
    tokens = {hash_token(tenant.name): Token(tenant) for tenant in tenants}
    limits = BuildLimits(waiting=1, waiting_per_caller=1)
    config = replace(settings(tmp_path / "s"), access=Access(tokens=tokens), limits=limits)
    *callers, last = [(("authorization", f"Bearer {tenant.name}"),) for tenant in tenants]
    with (
        serving(config) as bench,
        grpc.insecure_channel(bench.app.address) as channel,
        contextlib.ExitStack() as opened,
    ):
        stub = builder_pb2_grpc.BuilderStub(channel)
        for who in callers[:16]:
            opened.enter_context(reflecting(channel, who, 4))
        stub.List(pb.ListBuildsRequest(), metadata=last, timeout=DEADLINE_S)
        opened.enter_context(reflecting(channel, callers[16], 1))
        with pytest.raises(grpc.RpcError, match="65 calls are open; the limit is 65"):
            stub.List(pb.ListBuildsRequest(), metadata=last, timeout=DEADLINE_S)
        check_health(bench)


def test_the_server_is_given_all_limits_of_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, int] = {}
    make = grpc.server

    def noting(*args: Any, **more: Any) -> Any:
        given.update(more["options"])
        return make(*args, **more)

    monkeypatch.setattr(server.grpc, "server", noting)
    with serving(settings(tmp_path / "s")):
        pass
    assert given["grpc.max_concurrent_streams"] == 128
    assert given["grpc.server_handshake_timeout_ms"] == 10_000
    assert given["grpc.max_connection_idle_ms"] == 120_000
    assert given["grpc.max_allowed_incoming_connections"] > 0
    assert given["grpc.max_metadata_size"] == 16 << 10
    assert given["grpc.max_receive_message_length"] == 4 << 20
