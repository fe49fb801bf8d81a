"""The service with a real engine and a real registry, as a caller sees it."""

from __future__ import annotations

import threading
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zoos

from edl_proto.v1 import builder_pb2 as pb

from .docker_environment import DockerEnvironment, until
from .service import Outcome, Service, build, left_in, read, requests, serving, spec_for

REQUIREMENTS = "toolz==1.0.0\n"


@pytest.fixture(scope="module")
def service(
    docker_env: DockerEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    with serving(docker_env, tmp_path_factory.mktemp("builder") / "state") as found:
        yield found


@pytest.fixture
def repository(docker_env: DockerEnvironment) -> str:
    return f"{docker_env.registry}/tests/{uuid.uuid4().hex[:8]}"


def zoo(repository: str, code: str = "x = 1\n", requirements: str = REQUIREMENTS) -> bytes:
    """Return a zoo that no other test has, in gzip."""
    # pip leaves out what is for another machine, but the engine's cache sees another file.
    unique = f"{requirements}toolz==1.0.0 ; platform_version == '{repository}'\n"
    return zoos.tar(
        {"requirements.txt": unique, "pkg/model.py": code, "pkg/__init__.py": ""}, zipped=True
    )


def run_in(docker_env: DockerEnvironment, image: str, *command: str) -> str:
    """Return what a command prints in a container of an image, as the image's own user."""
    client = docker_env.client()
    try:
        output = client.containers.run(image, list(command), remove=True, network_mode="host")
        return str(output.decode())
    finally:
        client.close()


def test_cold_code_only_and_no_change(
    docker_env: DockerEnvironment, service: Service, repository: str
) -> None:
    with service.caller() as stub:
        cold = build(stub, repository, zoo(repository), tag="v1", labels={"team": "a"})
        assert cold.error is None, cold.text
        assert cold.phases[0] == "RECEIVING"
        assert cold.phases[-3:] == ["BUILDING", "PUSHING", "DONE"]
        assert not cold.last.result.reused
        assert [line.number for line in cold.lines] == list(range(1, len(cold.lines) + 1))
        assert "Collecting toolz" in cold.text

        code = build(stub, repository, zoo(repository, "x = 2\n"))
        assert code.error is None, code.text
        assert "Collecting" not in code.text
        assert code.last.result.cached_layers >= 4
        assert code.last.result.image != cold.last.result.image

        same = build(stub, repository, zoo(repository), tag="v1", labels={"team": "a"})
        assert same.last.result.reused
        assert same.last.result.image == cold.last.result.image
        assert same.last.result.key == cold.last.result.key
        assert "BUILDING" not in same.phases


def test_the_image_is_what_it_should_be(
    docker_env: DockerEnvironment, service: Service, repository: str
) -> None:
    with service.caller() as stub:
        outcome = build(stub, repository, zoo(repository, "x = 42\n"), labels={"team": "a"})
    result = outcome.last.result
    client = docker_env.client()
    try:
        for image in client.images.list(name=repository):
            client.images.remove(image.id, force=True)
        # Nothing is left here: the image is pulled by the builder's reference.
        pulled = client.images.pull(result.image)
        assert pulled.labels["team"] == "a"
        assert pulled.labels["io.edl.key"] == result.key
        assert pulled.attrs["Config"]["User"] == "10001:10001"
        assert pulled.attrs["Config"]["WorkingDir"] == "/model_zoo"
    finally:
        client.close()
    program = (
        "import os, sys, importlib.util, toolz; sys.path.insert(0, '/model_zoo');"
        "from pkg import model;"
        "print(os.getuid(), os.getcwd(), model.x, toolz.__version__,"
        " bool(importlib.util.find_spec('edl_worker')), os.access('/model_zoo', os.W_OK))"
    )
    assert run_in(docker_env, result.image, "python3", "-c", program).split() == [
        *("10001", "/model_zoo", "42", "1.0.0", "True", "False")
    ]


def test_twenty_callers_with_three_contents_are_three_builds(
    docker_env: DockerEnvironment, service: Service, repository: str
) -> None:
    contents = [zoo(repository, f"x = {n}\n") for n in range(3)]
    outcomes: list[Outcome] = []
    lock = threading.Lock()

    def ask(number: int) -> None:
        with service.caller() as stub:
            outcome = build(stub, repository, contents[number % 3])
        with lock:
            outcomes.append(outcome)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert len(outcomes) == 20
    assert all(outcome.error is None for outcome in outcomes)
    images = Counter(outcome.last.result.image for outcome in outcomes)
    assert sorted(images.values()) == [6, 7, 7]
    with service.caller() as stub:
        builds = [b for b in stub.List(pb.ListBuildsRequest()).builds if b.repository == repository]
    assert sum(1 for b in builds if not b.result.reused) == 3


def test_pips_reason_for_a_missing_requirement_is_shown(service: Service, repository: str) -> None:
    with service.caller() as stub:
        outcome = build(
            stub, repository, zoo(repository, requirements="no-such-package-anywhere==0\n")
        )
    assert outcome.error is not None
    assert outcome.last.phase == pb.BUILD_FAILED, outcome.text
    # pip says before this which versions there are, and which it has ignored.
    reason = "No matching distribution found for no-such-package-anywhere==0"
    assert f"ERROR: {reason}" in outcome.text
    assert outcome.error.details() == outcome.last.error.what == f"the build failed: {reason}"
    assert "requirements.txt" in outcome.last.error.remedy, (outcome.last, outcome.text)


def test_cancelling_ends_the_build_in_the_engine(
    docker_env: DockerEnvironment, service: Service, repository: str
) -> None:
    begun = threading.Event()
    found: list[Outcome] = []

    def news(each: pb.BuildProgress) -> None:
        if "RUN" in each.line.text and "requirements" in each.line.text:
            begun.set()

    def ask() -> None:
        with service.caller() as stub:
            found.append(build(stub, repository, zoo(repository), on_news=news))

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(200)
    with service.caller() as stub:
        (mine,) = [
            b for b in stub.List(pb.ListBuildsRequest()).builds if b.repository == repository
        ]
        stub.Cancel(pb.CancelBuildRequest(id=mine.id))
        thread.join(200)
        assert stub.Get(pb.GetBuildRequest(id=mine.id)).phase == pb.BUILD_CANCELLED
    assert found[0].last.phase == pb.BUILD_CANCELLED
    until("nothing of the build is left", lambda: left_in(docker_env) == (0, 0))


def test_it_ends_with_its_parent(docker_env: DockerEnvironment, tmp_path: Path) -> None:
    with serving(docker_env, tmp_path / "state") as service:
        assert service.process.stdin is not None
        service.process.stdin.close()
        assert service.process.wait(200) == 0


def test_metrics_say_what_was_built(service: Service, repository: str) -> None:
    with service.caller() as stub:
        assert build(stub, repository, zoo(repository)).error is None
        assert build(stub, repository, zoo(repository)).last.result.reused
    url = f"http://127.0.0.1:{service.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=200) as answer:
        text = answer.read().decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values['edl_image_builds_total{result="built"}']) >= 1
    assert float(values['edl_image_builds_total{result="reused"}']) >= 1
    assert float(values['edl_image_build_duration_seconds_count{result="built"}']) >= 1


def test_a_caller_who_leaves_while_another_waits(service: Service, repository: str) -> None:
    archive = zoo(repository)
    spec = spec_for(repository, archive)
    with service.caller() as one, service.caller() as two:
        first = one.Build(requests(spec, archive), timeout=200)
        for news in first:
            if "RUN" in news.line.text and "requirements" in news.line.text:
                break
        second = two.Build(requests(spec, archive), timeout=200)
        for news in second:
            if news.status.subscribers == 2:
                break
        first.cancel()
        outcome = read(second)
    assert outcome.error is None
    assert outcome.last.phase == pb.DONE
