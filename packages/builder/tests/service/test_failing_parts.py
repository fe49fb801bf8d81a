"""Time limits hold, and the service goes on, whatever its engine and its disk do."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import zoos
from fakes import FakeEngine, FakeRegistry
from service_bench import DEADLINE_S, ZOO, build, read, requests, serving, settings, spec_of, until

from edl_builder.adapters.build_store import BuildStore
from edl_builder.control import engine_monitor
from edl_builder.control.engine_monitor import EngineMonitor
from edl_builder.core import effects as fx
from edl_builder.core import events as ev
from edl_builder.core.state_machine import BuildStateMachine
from edl_builder.metrics import Metrics
from edl_proto.errors import ErrorCode
from edl_proto.v1 import builder_pb2 as pb


class UnprunableEngine(FakeEngine):
    """Leaves something half-built; asked again, it hangs or gives an answer that is none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hangs = True
        self.was_asked_again = threading.Event()
        self.gate = threading.Event()
        self._is_first = True

    def prune(self, keep: int) -> bool:
        if self._is_first:
            self._is_first = False
            return False
        self.was_asked_again.set()
        if self.hangs:
            assert self.gate.wait(DEADLINE_S)
            return True
        raise KeyError("Metadata")


@pytest.mark.parametrize("hangs", [True, False])
def test_time_limits_hold_while_the_engine_cannot_be_pruned(tmp_path: Path, hangs: bool) -> None:
    config = settings(tmp_path / "s")
    config = replace(config, limits=replace(config.limits, receive_s=0.5))
    engine = UnprunableEngine(FakeRegistry())
    engine.hangs = hangs
    silent = threading.Event()

    def stalling() -> Iterator[pb.BuildRequest]:
        assert engine.was_asked_again.wait(DEADLINE_S)
        yield pb.BuildRequest(spec=spec_of(b""))
        silent.wait(DEADLINE_S)

    with serving(config, engine) as bench, bench.stub() as stub:
        told = read(stub.Build(stalling(), timeout=DEADLINE_S))
        silent.set()
        engine.gate.set()
    assert told.status is grpc.StatusCode.DEADLINE_EXCEEDED
    assert told.last.error.code == ErrorCode.TIMED_OUT


def test_an_engine_that_gives_no_answer_to_understand_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_monitor, "_EVERY_S", 0.01)
    engine, is_broken = FakeEngine(FakeRegistry()), threading.Event()

    def ping() -> None:
        if is_broken.is_set():
            raise KeyError("ApiVersion")

    monkeypatch.setattr(engine, "ping", ping)
    monitor = EngineMonitor(engine, Metrics())
    until(lambda: monitor.is_ready)
    is_broken.set()
    until(lambda: not monitor.is_ready)
    is_broken.clear()
    until(lambda: monitor.is_ready)
    monitor.close()


def test_a_tick_that_fails_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, has_failed = BuildStateMachine.handle, threading.Event()

    def fail_once(builds: BuildStateMachine, event: ev.Event, now: float) -> list[fx.Effect]:
        if isinstance(event, ev.Tick) and not has_failed.is_set():
            has_failed.set()
            raise RuntimeError("a defect")
        return handle(builds, event, now)

    monkeypatch.setattr(BuildStateMachine, "handle", fail_once)
    with serving(settings(tmp_path / "s")) as bench, bench.stub() as stub:
        assert has_failed.wait(DEADLINE_S)
        bench.engine.hold.set()
        call = stub.Build(requests(spec_of(zoos.tar(ZOO)), zoos.tar(ZOO)), timeout=DEADLINE_S)
        name = next(call).status.id
        # Before it, the end of the call ends the upload.
        until(lambda: stub.Get(pb.GetBuildRequest(id=name)).phase == pb.BUILDING)
        call.cancel()
        until(lambda: stub.Get(pb.GetBuildRequest(id=name)).subscribers == 0)
        bench.abandon()
        until(lambda: stub.Get(pb.GetBuildRequest(id=name)).phase == pb.BUILD_CANCELLED)
        assert bench.metric("edl_internal_errors_total") == 1


def test_a_request_for_which_the_disk_has_no_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(settings(tmp_path / "s")) as bench, bench.stub() as stub:
        with monkeypatch.context() as full:
            full.setattr(BuildStore, "create", refuse)
            told = build(stub, zoos.tar(ZOO))
        assert told.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert told.error is not None
        assert told.error.what == "the builder's disk is full"
        assert bench.metric("edl_image_build_refusals_total", reason="limit") == 1
        assert build(stub, zoos.tar(ZOO)).last.phase == pb.DONE
