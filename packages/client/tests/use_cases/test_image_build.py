"""Building an image: the client's side, with a stand-in for the service over real gRPC."""

from __future__ import annotations

import functools
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import Edl, eventually

from edl.core.image_build import BuilderEndpoint, BuildRequest, BuildStatus
from edl.render.build_display import PlainBuild
from edl.use_cases import image_build
from edl_images import builder as image_builder
from edl_images import zoo_archive
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc
from edl_runtime.model.zoo_files import select

REPOSITORY = "registry.example.com/me/zoo"
D = "sha256:" + "a" * 64
IMAGE = f"{REPOSITORY}@{D}"


def status(phase: pb.BuildPhase.ValueType, **more: Any) -> pb.BuildProgress:
    return pb.BuildProgress(status=pb.BuildStatus(id="b1", phase=phase, **more))


def line(number: int) -> pb.BuildProgress:
    return pb.BuildProgress(line=pb.LogLine(number=number, text=f"line {number}"))


DONE = status(pb.DONE, result=pb.BuildResult(image=IMAGE, seconds=2, layers=9, cached_layers=4))


class StandIn(builder_pb2_grpc.BuilderServicer):
    """Plays ``script`` for Build, and ``rest`` for Watch."""

    def __init__(self) -> None:
        self.script: Callable[[Any], Iterator[pb.BuildProgress]] = lambda context: iter([DONE])
        self.rest: list[pb.BuildProgress] = []
        self.spec = pb.BuildSpec()
        self.archive = b""
        self.tokens: list[str] = []
        self.watched: list[int] = []
        self.left = threading.Event()

    def Build(self, request_iterator: Any, context: Any) -> Iterator[pb.BuildProgress]:
        self.tokens += [v for k, v in context.invocation_metadata() if k == "authorization"]
        context.add_callback(self.left.set)
        self.spec = next(request_iterator).spec
        self.archive = b"".join(request.chunk for request in request_iterator)
        yield from self.script(context)

    def Watch(self, request: Any, context: Any) -> Iterator[pb.BuildProgress]:
        self.watched.append(request.after_line)
        yield from self.rest


@pytest.fixture
def service() -> Iterator[tuple[StandIn, str]]:
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        options=channels.SERVER_OPTIONS,
        interceptors=[ErrorInterceptor()],
    )
    found = StandIn()
    builder_pb2_grpc.add_BuilderServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield found, f"127.0.0.1:{port}"
    server.stop(0).wait()


build = functools.partial(image_build.build, builder=image_builder)


class Notes:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.lines: list[str] = []
        self.said: list[str] = []
        self.ticks = 0

    def update(self, status: BuildStatus) -> None:
        self.phases.append(status.phase)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def say(self, text: str) -> None:
        self.said.append(text)

    def tick(self) -> None:
        self.ticks += 1

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    (folder / "pkg" / "__pycache__").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / "pkg" / "__pycache__" / "m.pyc").write_text("x")
    (folder / "pkg" / "m.py").write_text("x = 1\n")
    (folder / "link.py").symlink_to("pkg/m.py")
    return folder


def test_a_folder_is_sent_and_an_image_comes_back(
    service: tuple[StandIn, str], zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in, address = service
    monkeypatch.setenv("EDL_BUILDER_TOKEN", "secret")
    request = BuildRequest(
        str(zoo), "registry.example.com/me/zoo", "v1", "base:1", labels={"a": "b"}
    )
    image = build(request, BuilderEndpoint(address), Notes())
    assert image.name == IMAGE
    assert (image.layers, image.cached_layers, image.reused) == (9, 4, False)
    assert stand_in.tokens == ["Bearer secret"]
    assert stand_in.spec.repository == request.repository
    assert (stand_in.spec.tag, stand_in.spec.base_image) == ("v1", "base:1")
    assert stand_in.spec.archive.nbytes == len(stand_in.archive)
    with tarfile.open(fileobj=io.BytesIO(stand_in.archive)) as tar:
        assert sorted(tar.getnames()) == ["link.py", "pkg/m.py"]


def test_a_token_that_all_users_may_read_is_refused(
    service: tuple[StandIn, str], zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in, address = service
    request = BuildRequest(str(zoo), "registry.example.com/me/zoo")
    token = tmp_path / "token"
    token.write_text("secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDL_BUILDER_TOKEN_FILE", "~/token")
    token.chmod(0o644)
    with pytest.raises(EdlError, match="every user of this machine may read the token"):
        build(request, BuilderEndpoint(address), Notes())
    assert stand_in.tokens == []
    token.chmod(0o600)
    build(request, BuilderEndpoint(address), Notes())
    monkeypatch.setenv("EDL_BUILDER_TOKEN_FILE", str(token))
    build(request, BuilderEndpoint(address), Notes())
    assert stand_in.tokens == 2 * ["Bearer secret"]


def test_the_token_goes_only_to_the_host_that_it_is_for(
    service: tuple[StandIn, str], zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in, address = service
    request = BuildRequest(str(zoo), "registry.example.com/me/zoo")
    monkeypatch.setenv("EDL_BUILDER_TOKEN", "secret")

    def build_with(bound: str, *, from_project: bool = False) -> None:
        monkeypatch.setenv("EDL_BUILDER_TOKEN_HOST", bound)
        build(request, BuilderEndpoint(address, from_project=from_project), Notes())

    build_with("")
    build_with(address)
    build_with("127.0.0.1", from_project=True)
    assert stand_in.tokens == 3 * ["Bearer secret"]
    for bound, from_project in (("", True), ("elsewhere.example.com", False), ("a:1", True)):
        with pytest.raises(EdlError, match="no token is sent to") as refused:
            build_with(bound, from_project=from_project)
        assert refused.value.code == ErrorCode.USAGE
        assert "secret" not in str(refused.value)
    assert len(stand_in.tokens) == 3, "nothing was called"


def test_the_same_folder_is_the_same_octets(zoo: Path) -> None:
    archives = []
    for at in (1, 2):
        os.utime(zoo / "pkg" / "m.py", (at, at))
        buffer = io.BytesIO()
        zoo_archive.pack(zoo, buffer)
        archives.append(buffer.getvalue())
    assert archives[0] == archives[1]


def test_very_large_files_are_refused(zoo: Path) -> None:
    with (zoo / "data.bin").open("wb") as file:
        file.truncate(2 << 30)  # takes no room
    assert select(zoo).nbytes < 100, "no code names it"
    (zoo / ".edlignore").write_text("!data.bin\n")
    with pytest.raises(EdlError) as error:
        zoo_archive.pack(zoo, io.BytesIO())
    assert error.value.code == ErrorCode.LIMIT_EXCEEDED
    assert error.value.where.endswith("data.bin")


def test_a_broken_connection_is_taken_up_where_it_broke(
    service: tuple[StandIn, str], zoo: Path
) -> None:
    stand_in, address = service

    def breaks(context: Any) -> Iterator[pb.BuildProgress]:
        yield status(pb.BUILDING)
        yield line(1)
        yield line(2)
        context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")

    stand_in.script = breaks
    stand_in.rest = [status(pb.BUILDING), line(2), line(3), DONE]
    notes = Notes()
    assert build(BuildRequest(str(zoo), REPOSITORY), BuilderEndpoint(address), notes).name == IMAGE
    assert notes.lines == ["line 1", "line 2", "line 3"]
    assert stand_in.watched == [2]


def test_a_failure_of_the_service_is_passed_on_unchanged(
    service: tuple[StandIn, str], zoo: Path
) -> None:
    stand_in, address = service

    def fails(context: Any) -> Iterator[pb.BuildProgress]:
        error = EdlError(ErrorCode.IMAGE_BUILD_FAILED, "no such package", remedy="mend it")
        yield status(pb.BUILD_FAILED, error=error.to_proto())
        raise error

    stand_in.script = fails
    with pytest.raises(EdlError) as caught:
        build(BuildRequest(str(zoo), REPOSITORY), BuilderEndpoint(address), Notes())
    assert caught.value.code == ErrorCode.IMAGE_BUILD_FAILED
    assert caught.value.code == ErrorCode.IMAGE_BUILD_FAILED


def test_time_passes_while_nothing_is_heard(service: tuple[StandIn, str], zoo: Path) -> None:
    stand_in, address = service
    notes = Notes()

    def slow(context: Any) -> Iterator[pb.BuildProgress]:
        yield status(pb.QUEUED, queue_position=3)
        eventually(lambda: notes.ticks >= 2, "the display to be told of time")
        yield DONE

    stand_in.script = slow
    build(BuildRequest(str(zoo), REPOSITORY), BuilderEndpoint(address), notes)
    assert notes.phases == ["queued", "done"]


def test_ctrl_c_leaves_a_service_and_says_what_it_does(
    service: tuple[StandIn, str], zoo: Path
) -> None:
    stand_in, address = service

    def endless(context: Any) -> Iterator[pb.BuildProgress]:
        yield status(pb.BUILDING)
        stand_in.left.wait(200)

    stand_in.script = endless

    class Impatient(Notes):
        def tick(self) -> None:
            if self.phases:  # the build is known
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupt:
        build(BuildRequest(str(zoo), REPOSITORY), BuilderEndpoint(address), Impatient())
    (note,) = interrupt.value.__notes__
    assert "b1" in note
    assert address in note
    assert stand_in.left.wait(200), "the call has ended"


def test_lines_where_nothing_can_be_redrawn() -> None:
    written: list[str] = []
    display = PlainBuild(every_s=0.0, write=written.append)
    display.update(BuildStatus("b", "queued", position=2, waiting=1))
    display.update(BuildStatus("b", "building", waiting=2))
    display.update(BuildStatus("b", "building", waiting=2))
    display.line("Step 3/9 : RUN pip install")
    display.update(BuildStatus("b", "done"))
    assert written[0] == "image: queued, number 2"
    assert written[1] == "image: building, with another caller"
    assert written[2].startswith("image: building, with another caller, ")
    assert written[2].endswith("so far: Step 3/9 : RUN pip install")
    assert len(written) == 3


def test_every_line_on_demand() -> None:
    written: list[str] = []
    display = PlainBuild(every_line=True, every_s=60, write=written.append)
    display.update(BuildStatus("b", "building"))
    display.line("one")
    display.line("two")
    assert written == ["image: building", "  | one", "  | two"]


def test_the_needs_of_an_image_are_checked_before_anything_starts(edl: Edl) -> None:
    without = edl.run("zoo", "build", "--model-zoo", "zoo")
    assert (without.code, "--repository" in without.err) == (2, True)
    without = edl.run("zoo", "build", "--model-zoo", "zoo", "--repository", "127.0.0.1:1/x")
    assert (without.code, "--base-image" in without.err) == (2, True)
    without = edl.run("zoo", "build", "--repository", "127.0.0.1:1/x")
    assert (without.code, "--model-zoo" in without.err) == (2, True)
    no_engine = edl.run(
        *edl.job("--platform", "docker", "--engine", f"unix://{edl.place}/none.sock"),
        *("--repository", "127.0.0.1:1/x", "--base-image", "base:1"),
    )
    assert no_engine.code in (2, 11), str(no_engine)  # 2: the package docker is not there
    afar = edl.run(*edl.job("--platform", "docker", "--engine", "tcp://10.0.0.1:2375"))
    assert (afar.code, "this machine" in afar.err) == (2, True)
    assert not (edl.home / "jobs").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("", "x", D, f"@{D}", REPOSITORY, f"{REPOSITORY}:latest", f"{REPOSITORY}@latest"),
        *(f"{REPOSITORY}:v1@{D}", f"{REPOSITORY}@{D}0", f"{REPOSITORY}@{D[:-1]}"),
        *(f"{REPOSITORY}@{D}\n", f"{REPOSITORY}@{D}@{D}", f"{REPOSITORY}@{D.upper()}"),
        *(f"evil.example.com/me/zoo@{D}", f"registry.example.com/me/zoo2@{D}"),
        *(f"registry.example.com/me@{D}", f"{REPOSITORY}/../other@{D}", f"/{REPOSITORY}@{D}"),
        *(f"REGISTRY.example.com/me/zoo@{D}", f"{REPOSITORY}\x1b[2J@{D}", f"--privileged@{D}"),
        *(f"me/zoo@{D}", f"unix:///var/run/docker.sock@{D}", "x" * 1_000_000),
    ],
    ids=range(24),
)
def test_no_image_but_one_of_the_repository_is_taken_from_a_builder(
    service: tuple[StandIn, str], zoo: Path, name: str
) -> None:
    stand_in, address = service
    result = pb.BuildResult(image=name)
    stand_in.script = lambda context: iter([status(pb.DONE, result=result)])
    request = BuildRequest(str(zoo), REPOSITORY, "v1", "base:1")
    with pytest.raises(EdlError, match=r"no image of registry\.example\.com/me/zoo") as caught:
        build(request, BuilderEndpoint(address), Notes())
    assert caught.value.code == ErrorCode.BUILDER_UNAVAILABLE
    assert len(str(caught.value)) < 1000
    assert "\x1b" not in str(caught.value)


def test_a_builder_that_never_stops_to_talk_fills_no_memory(
    service: tuple[StandIn, str], zoo: Path
) -> None:
    """The lines that wait to be shown have a limit, and the rest stays with the builder."""
    stand_in, address = service
    sent = 0

    def talk(context: Any) -> Iterator[pb.BuildProgress]:
        nonlocal sent
        while context.is_active():
            sent += 1
            yield pb.BuildProgress(line=pb.LogLine(number=sent, text="x" * 100_000))

    stand_in.script = talk

    class Slow(Notes):
        def line(self, text: str) -> None:
            eventually(self.stalls, "the builder waits for the client")
            raise KeyboardInterrupt

        def stalls(self) -> bool:
            before = sent
            return before > 0 and not self.gone.wait(1) and sent == before

        gone = threading.Event()

    with pytest.raises(KeyboardInterrupt):
        build(BuildRequest(str(zoo), REPOSITORY, "v1", "base:1"), BuilderEndpoint(address), Slow())
    assert sent < 5000


@pytest.mark.parametrize(
    "answer",
    [
        pb.BuildProgress(),
        pb.BuildProgress(line=pb.LogLine(number=2**63 - 1, text="\x1b]0;x\x07")),
        status(pb.BUILD_FAILED),
        pb.BuildProgress(status=pb.BuildStatus(phase=pb.QUEUED, queue_position=2**31 - 1)),
        pb.BuildProgress(line=pb.LogLine(number=1, text="x" * 10_000_000)),
    ],
    ids=["nothing", "number", "no reason", "position", "10 MB"],
)
def test_answers_of_any_kind_are_errors(
    service: tuple[StandIn, str], zoo: Path, answer: pb.BuildProgress
) -> None:
    stand_in, address = service
    stand_in.script = lambda context: iter([answer])
    with pytest.raises(EdlError) as caught:
        build(BuildRequest(str(zoo), REPOSITORY, "v1", "base:1"), BuilderEndpoint(address), Notes())
    assert len(str(caught.value)) < 1000
