"""Callers are checked before their calls are read, and none stops the service for others."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import zoos
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service_bench import (
    ANN,
    BOB,
    DEADLINE_S,
    ZOO,
    Bench,
    build,
    requests,
    serving,
    settings,
    spec_of,
    until,
)

from edl_builder.config.access import Access, Token, hash_token
from edl_builder.core.build import BuildLimits
from edl_builder.core.build_request import Tenant
from edl_builder.core.identifiers import Caller
from edl_builder.core.quota import Quota
from edl_builder.servicers.authentication import Authenticator
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

TOKENS = Access(tokens={hash_token("ann-token"): Token(ANN), hash_token("bob-token"): Token(BOB)})
REFUSED_S = 60.0
"""A call that is not refused by then was let in: the test fails, where it would wait."""
AS_ANN = (("authorization", "Bearer ann-token"),)
AS_BOB = (("authorization", "Bearer bob-token"),)
STATUS = grpc.StatusCode
MALFORMED = (
    *(
        "",
        "Bearer",
        "Bearer ",
        "Bearer eve",
        "ann-token",
        "Basic YW5uOmFubi10b2tlbg==",
        "Bearer null",
    ),
    *(
        "Bearer ann-toke",
        "Bearer ann-token,",
        "Bearer ANN-TOKEN",
        "Bearer " + "A" * 4000,
        "Bearer ../ann",
    ),
    # Identity tokens without a signature, or that are none.
    *(
        "Bearer a.b.c",
        "Bearer ..",
        "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.",
        "Bearer e30.e30.e30",
    ),
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(replace(settings(tmp_path / "state"), access=TOKENS)) as found:
        yield found


@pytest.fixture
def channel(bench: Bench) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(bench.app.address) as found:
        yield found


def check_health(bench: Bench) -> None:
    """On a connection of its own, as a probe does."""
    own = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(bench.app.address, options=own) as channel:
        asked = health_pb2.HealthCheckRequest(service="edl.v1.Builder")
        answer = health_pb2_grpc.HealthStub(channel).Check(
            asked, timeout=REFUSED_S, wait_for_ready=True
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@contextlib.contextmanager
def silent() -> Iterator[Callable[[], Iterator[Any]]]:
    """Makes the messages of callers that send none."""
    over = threading.Event()

    def messages() -> Iterator[Any]:
        over.wait(DEADLINE_S)
        yield from ()

    try:
        yield messages
    finally:
        over.set()


def test_every_method_refuses_who_has_no_token_before_a_message(channel: grpc.Channel) -> None:
    """Walks the services; only health answers every caller."""
    methods = [
        f"/{service.full_name}/{method.name}"
        for service in (
            pb.DESCRIPTOR.services_by_name["Builder"],
            reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
        )
        for method in service.methods
    ]
    assert len(methods) == 6
    for method in methods:
        for metadata in ((), *((("authorization", each),) for each in MALFORMED)):
            with silent() as messages:
                call = channel.stream_stream(method)(
                    messages(), metadata=metadata, timeout=REFUSED_S
                )
                assert call.code() is STATUS.UNAUTHENTICATED, method


def test_ids_that_are_no_ids_find_nothing(channel: grpc.Channel) -> None:
    stub = builder_pb2_grpc.BuilderStub(channel)
    for text in (
        "",
        ".",
        "..",
        "../..",
        "/etc/passwd",
        "a/../b",
        "%2e%2e",
        "\0",
        "0" * 16,
        "x" * 9999,
    ):
        for call, request in ((stub.Get, pb.GetBuildRequest), (stub.Cancel, pb.CancelBuildRequest)):
            with pytest.raises(grpc.RpcError) as caught:
                call(request(id=text), metadata=AS_ANN, timeout=DEADLINE_S)
            assert caught.value.code() is STATUS.NOT_FOUND, text


def test_no_message_of_a_stranger_is_read(channel: grpc.Channel) -> None:
    """Who has no token is refused for that, and not for what he sends."""
    for method in ("Build", "Watch", "Get", "List", "Cancel"):
        for message in (b"", b"\xff" * 64):
            call = channel.stream_stream(f"/edl.v1.Builder/{method}")(
                iter([message]), timeout=REFUSED_S
            )
            assert call.code() is STATUS.UNAUTHENTICATED, (method, message)


def test_idle_streams_of_strangers_do_not_stop_the_service(
    bench: Bench, channel: grpc.Channel
) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    with silent() as messages:
        calls = [stub.ServerReflectionInfo(messages(), timeout=REFUSED_S) for _ in range(300)]
        check_health(bench)
        call_and_return_refusal = {call.code() for call in calls}
        assert (
            STATUS.UNAUTHENTICATED
            in call_and_return_refusal
            <= {STATUS.UNAUTHENTICATED, STATUS.UNAVAILABLE}
        )


def test_idle_streams_of_a_tenant_have_a_limit(bench: Bench, channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    with silent() as messages:
        calls = [stub.ServerReflectionInfo(messages(), metadata=AS_ANN) for _ in range(100)]
        until(lambda: sum(call.done() for call in calls) == 96, REFUSED_S)
        check_health(bench)
        call_and_return_refusal = {call.code() for call in calls if call.done()}
        assert (
            STATUS.RESOURCE_EXHAUSTED
            in call_and_return_refusal
            <= {STATUS.RESOURCE_EXHAUSTED, STATUS.UNAVAILABLE}
        )
        for call in calls:
            call.cancel()


def test_a_tenant_that_watches_three_hundred_times_stops_no_other(bench: Bench) -> None:
    bench.engine.hold.set()
    archive = zoos.tar(ZOO)
    with bench.stub() as stub:
        running = stub.Build(
            requests(spec_of(archive), archive), timeout=DEADLINE_S, metadata=AS_ANN
        )
        name = next(iter(running)).status.id
        asked = pb.WatchBuildRequest(id=name)
        watching = [stub.Watch(asked, metadata=AS_ANN, timeout=DEADLINE_S) for _ in range(300)]
        until(lambda: sum(call.done() for call in watching) >= 268, REFUSED_S)
        check_health(bench)
        assert list(stub.List(pb.ListBuildsRequest(), metadata=AS_BOB).builds) == []
        assert stub.Get(pb.GetBuildRequest(id=name), metadata=AS_ANN).id == name
        call_and_return_refusal = [call for call in watching if call.done()]
        assert len(call_and_return_refusal) == 268
        # UNAVAILABLE: more streams than a connection may have, before it was told so.
        codes = {call.code() for call in call_and_return_refusal}
        assert STATUS.RESOURCE_EXHAUSTED in codes <= {STATUS.RESOURCE_EXHAUSTED, STATUS.UNAVAILABLE}
        bench.engine.hold.clear()
        # Who was admitted sees the end, and makes room.
        for call in watching:
            if call not in call_and_return_refusal:
                assert list(call)[-1].status.phase == pb.DONE
        until(lambda: list(stub.Watch(asked, metadata=AS_ANN))[-1].status.phase == pb.DONE)


def test_all_calls_of_a_tenant_have_a_limit_and_those_of_all_tenants(tmp_path: Path) -> None:
    """These limits hold even if each method is called less often than it may be."""
    tenants = [replace(ANN, name=Caller(f"tenant-{number}")) for number in range(13)]
    tokens = {hash_token(tenant.name): Token(tenant) for tenant in tenants}
    limits = BuildLimits(waiting=1, waiting_per_caller=1)
    config = replace(settings(tmp_path / "s"), access=Access(tokens=tokens), limits=limits)
    first, *others = [(("authorization", f"Bearer {tenant.name}"),) for tenant in tenants]
    with serving(config) as bench, silent() as messages, bench.stub() as stub:
        bench.engine.hold.set()
        archive = zoos.tar(ZOO)
        building = stub.Build(requests(spec_of(archive), archive), metadata=first)
        asked = pb.WatchBuildRequest(id=next(iter(building)).status.id)
        watching = [stub.Watch(asked, metadata=first) for _ in range(32)]
        for call in watching:
            next(iter(call))

        def call_and_return_refusal(who: tuple[tuple[str, str], ...]) -> str:
            try:
                stub.List(pb.ListBuildsRequest(), metadata=who, timeout=REFUSED_S)
            except grpc.RpcError as error:
                return error.details() or ""
            return ""  # not all of the others have come

        assert "33 of your calls are open; the limit is 33" in call_and_return_refusal(first)
        with grpc.insecure_channel(bench.app.address) as channel:
            reflecting = reflection_pb2_grpc.ServerReflectionStub(channel)
            idle = []

            def is_full() -> bool:
                """Return whether no further call is accepted; if one is, it stays open."""
                who = others[len(idle) % len(others)]
                idle.append(reflecting.ServerReflectionInfo(messages(), metadata=who))
                return "65 calls are open; the limit is 65" in call_and_return_refusal(others[0])

            until(is_full, REFUSED_S)
            check_health(bench)
            for call in (*idle, *watching, building):
                call.cancel()
        bench.engine.hold.clear()


def test_health_answers_while_every_other_thread_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other threads wait for a disk that does not return the file of tenants."""
    over, waiting = threading.Event(), threading.Semaphore(0)

    def wait(self: Authenticator, context: grpc.ServicerContext) -> Tenant:
        waiting.release()
        over.wait(DEADLINE_S)
        context.abort(STATUS.UNAUTHENTICATED, "too late")
        raise AssertionError

    monkeypatch.setattr(Authenticator, "authenticate", wait)
    own = (("grpc.use_local_subchannel_pool", 1),)
    with contextlib.ExitStack() as opened:
        opened.callback(over.set)
        calls = []  # kept: gRPC cancels a call without references
        for _ in range(4):  # a connection has at most 128 calls
            channel = opened.enter_context(grpc.insecure_channel(bench.app.address, options=own))
            stub = builder_pb2_grpc.BuilderStub(channel)
            calls.extend(stub.List.future(pb.ListBuildsRequest()) for _ in range(100))
        for _ in range(bench.config.limits.waiting + 64 + 16):
            assert waiting.acquire(timeout=REFUSED_S)
        check_health(bench)


def test_health_cannot_be_watched(channel: grpc.Channel) -> None:
    """A stream of health would hold a thread for as long as its caller likes."""
    call = health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(), timeout=REFUSED_S
    )
    with pytest.raises(grpc.RpcError) as call_and_return_refusal:
        next(call)  # a stream that there is would begin at once, and not end
    assert call_and_return_refusal.value.code() is STATUS.UNIMPLEMENTED


def test_a_unary_call_without_a_message_is_refused(channel: grpc.Channel) -> None:
    call = channel.stream_unary("/edl.v1.Builder/Get").future(iter(()), metadata=AS_ANN)
    assert call.exception(DEADLINE_S).code() is STATUS.INVALID_ARGUMENT


def test_a_socket_of_this_machine(tmp_path: Path) -> None:
    config = replace(settings(tmp_path / "s"), socket=tmp_path / "socket")
    with serving(config) as bench, bench.stub() as stub:
        assert bench.app.address == f"unix:{tmp_path}/socket"
        assert build(stub, zoos.tar(ZOO)).status is STATUS.OK
    with grpc.insecure_channel(bench.app.address) as channel:
        builder = builder_pb2_grpc.BuilderStub(channel)
        with pytest.raises(grpc.RpcError):
            builder.List(pb.ListBuildsRequest(), timeout=1)


def read_audit_log(bench: Bench) -> list[dict[str, Any]]:
    path = bench.config.state_dir / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_call_that_matters_is_recorded_with_its_tenant(bench: Bench) -> None:
    with bench.stub() as stub:
        name = build(stub, zoos.tar(ZOO), AS_ANN).last.id
        build(stub, zoos.tar(ZOO), AS_BOB)
        build(stub, zoos.tar(ZOO))
        with pytest.raises(grpc.RpcError):
            stub.Cancel(pb.CancelBuildRequest(id=name), metadata=AS_BOB)
        stub.Get(pb.GetBuildRequest(id=name), metadata=AS_ANN)
    until(lambda: len(read_audit_log(bench)) == 4)
    found = [(each["tenant"], each["method"], each["status"]) for each in read_audit_log(bench)]
    assert found == [
        ("ann", "Build", "OK"),
        ("bob", "Build", "PERMISSION_DENIED"),
        ("", "Build", "UNAUTHENTICATED"),
        ("bob", "Cancel", "NOT_FOUND"),
    ]
    assert read_audit_log(bench)[0]["build"] == name
    assert all("127.0.0.1" in each["peer"] for each in read_audit_log(bench))
    assert "token" not in (bench.config.state_dir / "audit.jsonl").read_text()


def test_a_token_that_has_expired_is_refused(tmp_path: Path) -> None:
    tokens = {hash_token("old"): Token(ANN, 1.0), hash_token("new"): Token(ANN, 1e12)}
    config = replace(settings(tmp_path / "s"), access=Access(tokens=tokens))
    with serving(config) as bench, bench.stub() as stub:
        with pytest.raises(grpc.RpcError) as call_and_return_refusal:
            stub.List(pb.ListBuildsRequest(), metadata=(("authorization", "Bearer old"),))
        assert call_and_return_refusal.value.code() is STATUS.UNAUTHENTICATED
        assert "expired" in (call_and_return_refusal.value.details() or "")
        stub.List(pb.ListBuildsRequest(), metadata=(("authorization", "Bearer new"),))


def test_a_tenant_has_its_quota_and_no_more_also_after_a_restart(tmp_path: Path) -> None:
    archive = zoos.tar(ZOO)
    ann = replace(ANN, quota=Quota(builds=2))
    bob = replace(BOB, quota=Quota(nbytes=len(archive) - 1))
    access = Access(
        tokens={hash_token("ann-token"): Token(ann), hash_token("bob-token"): Token(bob)}
    )
    config = replace(settings(tmp_path / "s"), access=access)
    with serving(config) as bench, bench.stub() as stub:
        assert build(stub, archive, AS_ANN).status is STATUS.OK
        assert build(stub, archive, AS_ANN).status is STATUS.OK
        told = build(stub, archive, AS_BOB, repository="registry.test/team-b/x")
        assert told.status is STATUS.RESOURCE_EXHAUSTED
        assert told.error is not None
        assert "bob has used up its" in told.error.what
    with serving(config, bench.engine) as bench, bench.stub() as stub:
        told = build(stub, archive, AS_ANN)
        assert told.status is STATUS.RESOURCE_EXHAUSTED
        assert told.error is not None
        assert told.error.what == "ann has used up its 2 builds of today (UTC)"
