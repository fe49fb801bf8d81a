"""The service over real gRPC, with an engine and a registry in memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import certificates
import grpc
import pytest
import zoos
from fakes import FakeEngine, FakeRegistry
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from edl_builder.app import App
from edl_builder.config.access import Access, Token, hash_token
from edl_builder.config.builder_config import Config, Tls
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.build import BuildLimits
from edl_builder.core.build_request import RequestPolicy, Tenant
from edl_builder.core.names import BuilderError, Caller
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import Reference
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.monitoring.span_export import SpanExport, SpanRecord
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

BASE = "registry.test/base:1"
REPOSITORY = "registry.test/team-a/zoo"
ZOO = {"requirements.txt": "toolz==1.0.0\n", "m.py": "x = 1\n"}
DEADLINE_S = 200.0


def until(probe: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not probe():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


@dataclass
class Bench:
    """A service and what is below it."""

    config: Config
    registry: FakeRegistry
    engine: FakeEngine
    app: App

    def stub(self) -> contextlib.AbstractContextManager[builder_pb2_grpc.BuilderStub]:
        return _stub(self.app.address)

    def metric(self, name: str, **labels: str) -> float:
        return self.app.metrics.registry.get_sample_value(name, labels) or 0.0


@contextlib.contextmanager
def _stub(
    address: str, credentials: grpc.ChannelCredentials | None = None
) -> Iterator[builder_pb2_grpc.BuilderStub]:
    channel = (
        grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
    )
    with channel:
        yield builder_pb2_grpc.BuilderStub(channel)


def settings(state: Path) -> Config:
    return Config(
        host="127.0.0.1",
        port=0,
        state_dir=state,
        policy=RequestPolicy(
            default_base=BASE,
            bases=("registry.test/bases/*",),
            registries=("registry.test",),
            archive_nbytes=100_000,
        ),
        limits=BuildLimits(building=2, abandon_s=0.5),
        archive=ArchiveLimits(100_000, 200_000, 100),
    )


@contextlib.contextmanager
def serving(config: Config, engine: FakeEngine | None = None) -> Iterator[Bench]:
    if engine is None:
        engine = FakeEngine(FakeRegistry())
        digest = "sha256:" + "b" * 64
        engine.registry.put(Reference("registry.test", "base", "1"), RegistryImage(digest, 1))
    with App(config, engine, engine.registry) as app:
        yield Bench(config, engine.registry, engine, app)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(settings(tmp_path / "state")) as found:
        yield found


def requests(spec: pb.BuildSpec, archive: bytes, piece: int = 10_000) -> Iterator[pb.BuildRequest]:
    yield pb.BuildRequest(spec=spec)
    for start in range(0, len(archive), piece):
        yield pb.BuildRequest(chunk=archive[start : start + piece])


@dataclass
class Told:
    statuses: list[pb.BuildStatus]
    lines: list[str]
    status: grpc.StatusCode
    error: EdlError | None

    @property
    def last(self) -> pb.BuildStatus:
        return self.statuses[-1]


def spec_of(archive: bytes, /, **fields: object) -> pb.BuildSpec:
    given = {"repository": REPOSITORY, "archive": pb.ArchiveSource(nbytes=len(archive))}
    return pb.BuildSpec(**{**given, **fields})


def build(
    stub: builder_pb2_grpc.BuilderStub,
    archive: bytes,
    metadata: tuple[tuple[str, str], ...] = (),
    /,
    **fields: object,
) -> Told:
    call = stub.Build(
        requests(spec_of(archive, **fields), archive), timeout=DEADLINE_S, metadata=metadata
    )
    return read(call)


def read(call: grpc.CallIterator[pb.BuildProgress]) -> Told:
    statuses, lines = [], []
    try:
        for news in call:
            if news.WhichOneof("update") == "status":
                statuses.append(news.status)
            else:
                lines.append(news.line.text)
    except grpc.RpcError as error:
        code = error.code()
        return Told(statuses, lines, code, EdlError.from_rpc(error))
    return Told(statuses, lines, grpc.StatusCode.OK, None)


# --- behaviour -----------------------------------------------------------------------------


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


def _held(bench: Bench, stub: builder_pb2_grpc.BuilderStub) -> tuple[object, str]:
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


def test_cancelling(bench: Bench) -> None:
    with bench.stub() as stub:
        call, name = _held(bench, stub)
        stub.Cancel(pb.CancelBuildRequest(id=name))
        told = read(call)
        assert told.last.phase == pb.BUILD_CANCELLED
        assert told.status is grpc.StatusCode.CANCELLED
        assert bench.metric("edl_image_builds_total", result="cancelled") == 1
        folder = bench.config.state_dir / "builds" / name
        assert sorted(path.name for path in folder.iterdir()) == ["build.json", "log.jsonl"]


def test_a_caller_that_leaves_does_not_end_a_build_for_others(bench: Bench) -> None:
    with bench.stub() as one, bench.stub() as two:
        call, name = _held(bench, one)
        watching = two.Watch(pb.WatchBuildRequest(id=name), timeout=DEADLINE_S)
        until(lambda: two.Get(pb.GetBuildRequest(id=name)).subscribers == 2)
        call.cancel()
        until(lambda: two.Get(pb.GetBuildRequest(id=name)).subscribers == 1)
        time.sleep(2 * bench.config.limits.abandon_s)  # as long as it would take to be given up
        bench.engine.hold.clear()
        assert read(watching).last.phase == pb.DONE


def test_a_build_without_callers_is_cancelled(bench: Bench) -> None:
    with bench.stub() as stub:
        call, name = _held(bench, stub)
        call.cancel()
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


def test_a_log_has_a_limit(tmp_path: Path) -> None:
    with serving(replace(settings(tmp_path / "s"), log_nbytes=400)) as bench, bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO))
    assert told.status is grpc.StatusCode.OK
    assert told.lines[-1] == "the log is full; further lines are not kept"


def test_after_a_restart_all_is_known_and_the_rest_is_built(tmp_path: Path) -> None:
    config = settings(tmp_path / "state")
    with serving(config) as bench, bench.stub() as stub:
        done = build(stub, zoos.tar({"a.py": ""})).last
        _, name = _held(bench, stub)
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


# --- safety --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"repository": "evil.test/a"}, grpc.StatusCode.PERMISSION_DENIED),
        ({"repository": "registry.test/a:tag"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"repository": "--privileged/a"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"repository": ""}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"tag": "-x"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"tag": "edl-0"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"base_image": "evil.test/base"}, grpc.StatusCode.PERMISSION_DENIED),
        ({"base_image": "x\nRUN id"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"labels": {"io.edl.key": "x"}}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"archive": pb.ArchiveSource(nbytes=1 << 40)}, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ({"archive": pb.ArchiveSource(sha256="x")}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"git": pb.GitSource(url="file:///etc")}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"git": pb.GitSource(url="https://127.0.0.1/a")}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"git": pb.GitSource(url="https://x.com/a", ref="-x")}, grpc.StatusCode.INVALID_ARGUMENT),
        (
            {"git": pb.GitSource(url="https://localhost/a.git")},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
    ],
)
def test_what_must_not_be_asked_is_refused(
    bench: Bench, fields: dict[str, object], code: grpc.StatusCode
) -> None:
    with bench.stub() as stub:
        told = build(stub, zoos.tar(ZOO), **fields)
    assert told.status is code
    assert told.error is not None
    assert told.error.what
    assert bench.engine.builds == []


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (zoos.tar({"../x": "x"}), grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar({"/etc/x": "x"}), grpc.StatusCode.INVALID_ARGUMENT),
        (
            zoos.tar(ZOO, [zoos.member("l", type=b"2", linkname="/etc/passwd")]),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            zoos.tar(ZOO, [zoos.member("l", type=b"1", linkname="m.py")]),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (zoos.tar(ZOO, [zoos.member("d", type=b"3")]), grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar(ZOO, [zoos.member("d", type=b"6")]), grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar({"z": bytes(1 << 20)}, zipped=True), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (
            zoos.tar({f"f{n}": "" for n in range(101)}, zipped=True),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ),
        (zoos.tar({"r": bytes(150_000)}), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"no archive at all" * 100, grpc.StatusCode.INVALID_ARGUMENT),
        (b"", grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar({}), grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar(ZOO)[:700], grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar(ZOO, zipped=True)[:-20], grpc.StatusCode.INVALID_ARGUMENT),
        (zoos.tar({"requirements.txt": "-e .", "m.py": ""}), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_archives_that_must_not_be_taken_are_refused(
    bench: Bench, archive: bytes, code: grpc.StatusCode
) -> None:
    with bench.stub() as stub:
        told = build(stub, archive, archive=pb.ArchiveSource(nbytes=0))
    assert told.status is code
    assert bench.engine.builds == []
    folders = list((bench.config.state_dir / "builds").iterdir())
    left = {path.name for folder in folders for path in folder.iterdir()}
    assert left <= {"build.json", "log.jsonl"}


def test_an_archive_that_is_not_the_announced_one_is_refused(bench: Bench) -> None:
    archive = zoos.tar(ZOO)
    right = hashlib.sha256(archive).hexdigest()
    with bench.stub() as stub:
        for source in (
            pb.ArchiveSource(nbytes=len(archive) + 1),
            pb.ArchiveSource(nbytes=len(archive), sha256="0" * 64),
        ):
            assert build(stub, archive, archive=source).status is grpc.StatusCode.INVALID_ARGUMENT
        good = pb.ArchiveSource(nbytes=len(archive), sha256=right)
        assert build(stub, archive, archive=good).status is grpc.StatusCode.OK


def test_a_stream_that_breaks_the_contract_is_refused(bench: Bench) -> None:
    spec = pb.BuildRequest(spec=spec_of(zoos.tar(ZOO)))
    chunk = pb.BuildRequest(chunk=b"x")
    with bench.stub() as stub:
        for messages in ([], [chunk], [pb.BuildRequest()], [spec, spec]):
            told = read(stub.Build(iter(messages), timeout=DEADLINE_S))
            assert told.status is grpc.StatusCode.INVALID_ARGUMENT, messages


def test_a_sender_that_stops_runs_into_the_deadline(tmp_path: Path) -> None:
    config = settings(tmp_path / "s")
    config = replace(config, limits=replace(config.limits, receive_s=0.5))
    silent = threading.Event()

    def stalling() -> Iterator[pb.BuildRequest]:
        yield pb.BuildRequest(spec=spec_of(b""))
        silent.wait(DEADLINE_S)

    with serving(config) as bench, bench.stub() as stub:
        told = read(stub.Build(stalling(), timeout=DEADLINE_S))
        silent.set()
    assert told.status is grpc.StatusCode.DEADLINE_EXCEEDED
    assert told.last.error.code == ErrorCode.TIMED_OUT


ANN = Tenant(Caller("ann"), ("registry.test/team-a/*",), ())
BOB = Tenant(Caller("bob"), ("registry.test/team-b/*",), ())


def test_tokens_and_per_tenant_repositories(tmp_path: Path) -> None:
    tokens = {hash_token("ann-token"): Token(ANN), hash_token("bob-token"): Token(BOB)}
    access = Access(tokens=tokens)
    ann = (("authorization", "Bearer ann-token"),)
    bob = (("authorization", "bearer bob-token"),)
    archive = zoos.tar(ZOO)
    with serving(replace(settings(tmp_path / "s"), access=access)) as bench, bench.stub() as stub:
        for wrong in ((), (("authorization", "Bearer nobody"),), (("authorization", "ann-token"),)):
            assert build(stub, archive, wrong).status is grpc.StatusCode.UNAUTHENTICATED
        assert build(stub, archive, bob).status is grpc.StatusCode.PERMISSION_DENIED
        mine = build(stub, archive, ann)
        assert mine.status is grpc.StatusCode.OK
        name = mine.last.id
        assert stub.Get(pb.GetBuildRequest(id=name), metadata=ann).id == name
        for method, request in (
            (stub.Get, pb.GetBuildRequest(id=name)),
            (stub.Cancel, pb.CancelBuildRequest(id=name)),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                method(request, metadata=bob)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        watch = read(stub.Watch(pb.WatchBuildRequest(id=name), metadata=bob))
        assert watch.status is grpc.StatusCode.NOT_FOUND
        assert list(stub.List(pb.ListBuildsRequest(), metadata=bob).builds) == []
        assert len(stub.List(pb.ListBuildsRequest(), metadata=ann).builds) == 1
        state = bench.config.state_dir
    written = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert b"ann-token" not in written


def test_tls_and_mutual_tls(tmp_path: Path) -> None:
    ca = certificates.make_ca(tmp_path / "ca")
    server = certificates.make_certificate(ca, tmp_path, "server")
    ann = certificates.make_certificate(ca, tmp_path, "ann")
    eve = certificates.make_certificate(ca, tmp_path, "eve")
    config = replace(
        settings(tmp_path / "s"),
        tls=Tls(server.certificate, server.key, ca.certificate),
        access=Access(certificates={"ann": ANN}),
    )

    def credentials(who: certificates.Certificate | None) -> grpc.ChannelCredentials:
        root = ca.certificate.read_bytes()
        if who is None:
            return grpc.ssl_channel_credentials(root)
        return grpc.ssl_channel_credentials(
            root, who.key.read_bytes(), who.certificate.read_bytes()
        )

    with serving(config) as bench:
        seen = {}
        for name, who in (("ann", ann), ("eve", eve), ("nobody", None)):
            with _stub(bench.app.address, credentials(who)) as stub:
                seen[name] = build(stub, zoos.tar(ZOO)).status
        with _stub(bench.app.address, credentials(ann)) as stub:
            wrong = (("authorization", "Bearer no-token-of-anybody"),)
            seen["ann with a wrong token"] = build(stub, zoos.tar(ZOO), wrong).status
        with bench.stub() as stub:
            seen["without TLS"] = build(stub, zoos.tar(ZOO)).status
    assert seen == {
        "ann": grpc.StatusCode.OK,
        "eve": grpc.StatusCode.UNAUTHENTICATED,
        "ann with a wrong token": grpc.StatusCode.UNAUTHENTICATED,
        "nobody": grpc.StatusCode.UNAVAILABLE,
        "without TLS": grpc.StatusCode.UNAVAILABLE,
    }
