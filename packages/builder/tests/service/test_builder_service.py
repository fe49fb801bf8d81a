"""The service over real gRPC, with an engine and a registry in memory."""

from __future__ import annotations

import errno
import gc
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import grpc
import pytest
import zoos
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service_bench import (
    DEADLINE_S,
    REPOSITORY,
    ZOO,
    Bench,
    Told,
    build,
    read,
    requests,
    serving,
    settings,
    spec_of,
    until,
)

from edl_builder.adapters import archives
from edl_builder.adapters.build_store import BuildRecord, BuildStore
from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.app import App
from edl_builder.codec import error_to
from edl_builder.config import builder_config
from edl_builder.control import build_work
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.references import Reference
from edl_proto.errors import ErrorCode
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc
from edl_spans.export import SpanExport, SpanRecord


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(settings(tmp_path / "state")) as found:
        yield found


def test_a_zoo_becomes_an_image(bench: Bench) -> None:
    with bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO), tag="v1")
    assert told.status is grpc.StatusCode.OK
    assert told.last.phase == pb.DONE
    result = told.last.result
    assert result.image.startswith(f"{REPOSITORY}@sha256:")
    assert not result.reused
    assert result.nbytes > 0
    assert "Collecting toolz==1.0.0" in told.lines
    tagged = bench.registry.find(Reference("registry.test", "team-a/zoo", "v1"))
    assert tagged is not None
    assert result.image.endswith(tagged.digest)
    assert bench.metric("edl_image_builds_total", result="built") == 1


class Recorded(SpanExport):
    """Keeps what it would send."""

    records: ClassVar[list[SpanRecord]] = []

    @property
    def is_on(self) -> bool:
        return True

    def record(self, record: SpanRecord) -> None:
        self.records.append(record)


def test_every_build_is_a_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl_builder.app.SpanExport", Recorded)
    monkeypatch.setattr(Recorded, "records", [])
    with serving(settings(tmp_path / "state")) as bench, bench.stub() as stub:
        result = build(stub, zoos.tar(ZOO)).last.result
        bench.engine.down = True
        build(stub, zoos.tar({**ZOO, "other.py": b""}))
        assert bench.metric("edl_spans_total", result="sent") == 0
    built, failed = Recorded.records
    assert (built.name, built.failure, built.attributes["edl.image"]) == ("build", "", result.image)
    assert built.seconds == pytest.approx(result.seconds, abs=0.01)
    assert (failed.name, failed.attributes["edl.phase"]) == ("build", "failed")
    assert failed.failure


def test_the_same_again_is_answered_without_building(bench: Bench) -> None:
    with bench.stub() as stub:
        first = build(stub, zoos.tar(ZOO))
        # Packed in another order, at another time, in gzip: the same content.
        again = build(stub, zoos.tar(dict(reversed(ZOO.items())), zipped=True), tag="v2")
    assert again.last.result.reused
    assert again.last.result.image == first.last.result.image
    assert len(bench.engine.builds) == 1
    assert bench.registry.find(Reference("registry.test", "team-a/zoo", "v2")) is not None


def test_identical_requests_at_a_time_are_one_build(bench: Bench) -> None:
    bench.engine.hold.set()
    told: list[Told] = []

    def ask() -> None:
        with bench.stub() as stub:
            told.append(build(stub, zoos.tar(ZOO)))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    with bench.stub() as stub:
        until(lambda: sum(b.subscribers for b in stub.List(pb.ListBuildsRequest()).builds) == 10)
        until(lambda: len(stub.List(pb.ListBuildsRequest()).builds) == 1)
        bench.engine.hold.clear()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert {t.last.result.image for t in told} == {told[0].last.result.image}
    assert len({t.last.id for t in told}) == 1
    assert len(bench.engine.builds) == 1
    assert bench.metric("edl_image_builds_total", result="merged") == 9
    # A caller whose build was merged gets the whole log as well.
    assert all("Collecting toolz==1.0.0" in t.lines for t in told)


def test_what_cancels_a_build_ends_with_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds, too, if the build was merged into another one."""
    flags: weakref.WeakSet[CancellationFlag] = weakref.WeakSet()

    class Counted(CancellationFlag):
        def __init__(self) -> None:
            super().__init__()
            flags.add(self)

    monkeypatch.setattr(build_work, "CancellationFlag", Counted)
    bench.engine.hold.set()
    with bench.stub() as stub:
        calls = []
        for subscribers in (1, 2):
            archive = zoos.tar(ZOO)
            calls.append(stub.Build(requests(spec_of(archive), archive), timeout=DEADLINE_S))
            until(
                lambda n=subscribers: (
                    [(b.phase, b.subscribers) for b in stub.List(pb.ListBuildsRequest()).builds]
                    == [(pb.BUILDING, n)]
                )
            )
        bench.engine.hold.clear()
        assert {read(call).last.phase for call in calls} == {pb.DONE}
        assert bench.metric("edl_image_builds_total", result="merged") == 1

        def are_gone() -> bool:
            gc.collect()
            return not flags

        until(are_gone)


def test_no_more_are_built_at_a_time_than_allowed(bench: Bench) -> None:
    told: list[Told] = []

    def ask(number: int) -> None:
        with bench.stub() as stub:
            told.append(build(stub, zoos.tar({**ZOO, "n.py": str(number)})))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [t.status for t in told] == [grpc.StatusCode.OK] * 8
    assert bench.engine.most <= 2


def start_waiting_build(bench: Bench, stub: builder_pb2_grpc.BuilderStub) -> tuple[grpc.Call, str]:
    """A build that waits in a step, and its id."""
    bench.engine.hold.set()
    archive = zoos.tar(ZOO)
    call = stub.Build(requests(spec_of(archive), archive), timeout=DEADLINE_S)
    build_id = ""
    for news in call:
        build_id = news.status.id or build_id
        if news.line.text.startswith("Step 4"):
            break
    return call, build_id


def leave(call: grpc.Call, stub: builder_pb2_grpc.BuilderStub, name: str) -> None:
    """End the only call that follows a build."""
    call.cancel()
    until(lambda: stub.Get(pb.GetBuildRequest(id=name)).subscribers == 0)


def test_cancelling(bench: Bench) -> None:
    with bench.stub() as stub:
        call, name = start_waiting_build(bench, stub)
        stub.Cancel(pb.CancelBuildRequest(id=name))
        told = read(call)
        assert told.last.phase == pb.BUILD_CANCELLED
        assert told.status is grpc.StatusCode.CANCELLED
        assert bench.metric("edl_image_builds_total", result="cancelled") == 1
        folder = bench.config.state_dir / "builds" / name
        assert sorted(path.name for path in folder.iterdir()) == ["build.json", "log.jsonl"]


def test_a_caller_that_leaves_does_not_end_a_build_for_others(bench: Bench) -> None:
    with bench.stub() as one, bench.stub() as two:
        call, name = start_waiting_build(bench, one)
        watching = two.Watch(pb.WatchBuildRequest(id=name), timeout=DEADLINE_S)
        until(lambda: two.Get(pb.GetBuildRequest(id=name)).subscribers == 2)
        call.cancel()
        until(lambda: two.Get(pb.GetBuildRequest(id=name)).subscribers == 1)
        bench.abandon()
        bench.engine.hold.clear()
        assert read(watching).last.phase == pb.DONE


def test_a_build_without_callers_is_cancelled(bench: Bench) -> None:
    with bench.stub() as stub:
        call, name = start_waiting_build(bench, stub)
        leave(call, stub, name)
        assert stub.Get(pb.GetBuildRequest(id=name)).phase == pb.BUILDING
        bench.abandon()
        until(lambda: stub.Get(pb.GetBuildRequest(id=name)).phase == pb.BUILD_CANCELLED)


def test_watching_a_finished_build_and_from_a_line_on(bench: Bench) -> None:
    with bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO))
        name = told.last.id
        all_of_it = read(stub.Watch(pb.WatchBuildRequest(id=name)))
        assert all_of_it.lines == told.lines
        rest = read(stub.Watch(pb.WatchBuildRequest(id=name, after_line=3)))
        assert rest.lines == told.lines[3:]
        assert rest.last == all_of_it.last


def test_a_failing_build_says_what_and_where(bench: Bench) -> None:
    with bench.stub() as stub:
        told = build(stub, zoos.tar({"requirements.txt": "no-such-package\n", "m.py": ""}))
    assert told.status is grpc.StatusCode.ABORTED
    assert told.error is not None
    assert told.error.what == told.last.error.what == "the build failed: pip"
    assert "ERROR: No matching distribution found for no-such-package" in told.lines


def test_a_build_that_fails_with_a_long_log_says_what_and_where(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than gRPC lets pass at the end of a call."""

    def fail(*_: object) -> None:
        detail = "\n".join(["x" * 4000] * 60)
        raise BuilderError(Reason.BUILD, "the build failed: pip", detail=detail)

    monkeypatch.setattr(bench.engine, "build", fail)
    with bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO))
    assert told.status is grpc.StatusCode.ABORTED
    assert told.error is not None
    assert told.error.what == told.last.error.what == "the build failed: pip"
    assert len(told.last.error.detail) > 200_000


def test_without_an_engine_or_a_registry_the_build_fails_clearly(bench: Bench) -> None:
    with bench.stub() as stub:
        bench.engine.down = True
        told = build(stub, zoos.tar(ZOO))
        assert told.status is grpc.StatusCode.UNAVAILABLE
        assert told.last.error.code == ErrorCode.ENGINE_UNAVAILABLE
        bench.engine.down, bench.registry.down = False, True
        told = build(stub, zoos.tar(ZOO))
        assert told.status is grpc.StatusCode.UNAVAILABLE
        assert told.last.error.code == ErrorCode.REGISTRY_UNAVAILABLE
        bench.registry.down = False
        assert build(stub, zoos.tar(ZOO)).status is grpc.StatusCode.OK


@pytest.mark.parametrize("step", ["receive", "repack"])
def test_an_internal_error_of_an_upload_or_a_build_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(archives, step, fail)
    with bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO))
    assert told.status is grpc.StatusCode.INTERNAL
    assert bench.metric("edl_internal_errors_total") == 1
    assert bench.metric("edl_image_build_failures_total", reason="internal_error") == 1


def test_a_log_has_a_limit(tmp_path: Path) -> None:
    with serving(replace(settings(tmp_path / "s"), log_nbytes=400)) as bench, bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO))
    assert told.status is grpc.StatusCode.OK
    assert told.lines[-1] == "the log is full; further lines are not kept"


def test_a_full_disk_keeps_no_build_from_ending(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full, save = threading.Event(), BuildStore.save

    def save_if_possible(store: BuildStore, record: BuildRecord) -> None:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        save(store, record)

    def saved_phase(name: str) -> str:
        path = bench.config.state_dir / "builds" / name / "build.json"
        return str(json.loads(path.read_text())["phase"]) if path.exists() else ""

    monkeypatch.setattr(BuildStore, "save", save_if_possible)
    with bench.stub() as stub:
        call, abandoned = start_waiting_build(bench, stub)
        is_full.set()
        leave(call, stub, abandoned)
        bench.abandon()
        until(lambda: stub.Get(pb.GetBuildRequest(id=abandoned)).phase == pb.BUILD_CANCELLED)
        bench.engine.hold.clear()
        done = build(stub, zoos.tar(ZOO)).last
        assert done.phase == pb.DONE
        assert (saved_phase(abandoned), saved_phase(done.id)) == ("building", "")
        is_full.clear()
        until(lambda: (saved_phase(abandoned), saved_phase(done.id)) == ("cancelled", "done"))


def test_after_a_restart_all_is_known_and_the_rest_is_built(tmp_path: Path) -> None:
    config = settings(tmp_path / "state")
    with serving(config) as bench, bench.stub() as stub:
        done = build(stub, zoos.tar({"a.py": ""})).last
        _, name = start_waiting_build(bench, stub)
        engine = bench.engine
    engine.hold.clear()
    with serving(config, engine) as bench, bench.stub() as stub:
        assert stub.Get(pb.GetBuildRequest(id=done.id)).result == done.result
        told = read(stub.Watch(pb.WatchBuildRequest(id=name), timeout=DEADLINE_S))
        assert told.last.phase == pb.DONE
        assert "the builder was restarted" in told.lines


def test_two_services_do_not_share_a_folder(tmp_path: Path, bench: Bench) -> None:
    with pytest.raises(BuilderError, match="another builder works in"):
        App(bench.config, bench.engine, bench.registry)
    command = [sys.executable, "-m", "edl_builder", "--state-dir", str(bench.config.state_dir)]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert second.returncode == 2, second.stderr
    answer = json.loads(second.stdout)
    assert answer["is_state_in_use"]
    assert "another builder works in" in answer["error"]


@pytest.mark.parametrize("place", ["", "builds", "images", "lock"])
def test_a_state_folder_that_cannot_be_used_is_an_error_of_the_settings(
    tmp_path: Path, place: str
) -> None:
    """A file stands where there should be a folder, or the reverse."""
    state = tmp_path / "state"
    wrong = state / place
    wrong.parent.mkdir(exist_ok=True)
    wrong.mkdir() if place == "lock" else wrong.write_text("")
    with pytest.raises(BuilderError) as caught:
        App(builder_config.read(["--state-dir", str(state)]))
    told = error_to(caught.value.failure)
    assert told.code == ErrorCode.USAGE
    assert f"the state in {state} cannot be used: {wrong}" in told.what
    assert told.where == "--state-dir"


def test_health_and_reflection(bench: Bench) -> None:
    with grpc.insecure_channel(bench.app.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="edl.v1.Builder")
        assert health.Check(asked).status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([ask]))
        names = {service.name for service in answer.list_services_response.service}
    assert "edl.v1.Builder" in names
