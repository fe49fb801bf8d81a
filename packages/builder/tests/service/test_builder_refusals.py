"""What a builder refuses: requests, archives, senders and callers."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import certificates
import grpc
import pytest
import zoos
from service_bench import (
    ANN,
    BOB,
    DEADLINE_S,
    ZOO,
    Bench,
    build,
    read,
    serving,
    settings,
    spec_of,
    stub_to,
)

from edl_builder.config.access import Access, Token, hash_token
from edl_builder.config.tls import Tls
from edl_proto.errors import ErrorCode
from edl_proto.v1 import builder_pb2 as pb


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(settings(tmp_path / "state")) as found:
        yield found


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


def test_tokens_and_per_tenant_repositories(tmp_path: Path) -> None:
    tokens = {hash_token("ann-token"): Token(ANN), hash_token("bob-token"): Token(BOB)}
    access = Access(tokens=tokens)
    ann = (("authorization", "Bearer ann-token"),)
    bob = (("authorization", "bearer bob-token"),)
    archive = zoos.tar(ZOO)
    with serving(replace(settings(tmp_path / "s"), access=access)) as bench, bench.stub() as stub:
        for wrong in (
            (),
            (("authorization", "Bearer stranger"),),
            (("authorization", "ann-token"),),
        ):
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
        for name, who in (("ann", ann), ("eve", eve), ("stranger", None)):
            with stub_to(bench.app.address, credentials(who)) as stub:
                seen[name] = build(stub, zoos.tar(ZOO)).status
        with stub_to(bench.app.address, credentials(ann)) as stub:
            wrong = (("authorization", "Bearer no-token-of-a-tenant"),)
            seen["ann with a wrong token"] = build(stub, zoos.tar(ZOO), wrong).status
        with bench.stub() as stub:
            seen["without TLS"] = build(stub, zoos.tar(ZOO)).status
    assert seen == {
        "ann": grpc.StatusCode.OK,
        "eve": grpc.StatusCode.UNAUTHENTICATED,
        "ann with a wrong token": grpc.StatusCode.UNAUTHENTICATED,
        "stranger": grpc.StatusCode.UNAVAILABLE,
        "without TLS": grpc.StatusCode.UNAVAILABLE,
    }
