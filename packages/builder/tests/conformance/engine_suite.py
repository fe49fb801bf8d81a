"""What every engine and registry promise together, as tests; see ``edl_builder.core.ports``.

A test module subclasses ``EngineSuite`` and gives it a harness:

    class TestDockerEngine(EngineSuite):
        @pytest.fixture
        def harness(self): ...
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
import zoos

from edl_builder.adapters import archives
from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.content import Runtime
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.ports import Engine, Registry, StepCounts
from edl_builder.core.recipe import PackageIndex, dockerfile
from edl_builder.core.references import Reference

LIMITS = ArchiveLimits(1 << 20, 1 << 20, 100)
DEADLINE_S = 120.0
REQUIREMENTS = "toolz==1.0.0\n"
"""Small, and pure Python."""


class EngineHarness(Protocol):
    """The access to an engine that the suite needs."""

    engine: Engine
    registry: Registry

    @property
    def base(self) -> Reference:
        """An image with Python, pip and the worker, pinned by digest."""

    @property
    def repository(self) -> Reference:
        """Where tests may push."""

    def leftovers(self) -> tuple[int, int]:
        """How many half-built images and how many containers there are."""

    def hold(self, context: Path) -> None:
        """Have builds of this context take for ever in a step."""

    def has_image(self, name: Reference) -> bool:
        """Whether the engine itself has an image."""


class EngineSuite:
    """The promises."""

    @pytest.fixture
    def name(self, harness: EngineHarness) -> Reference:
        return replace(harness.repository, tag=f"t-{uuid.uuid4().hex}")

    @pytest.fixture
    def lines(self) -> list[str]:
        return []

    def context(
        self, harness: EngineHarness, folder: Path, files: Mapping[str, str], name: str = "c"
    ) -> Path:
        """The build context of a zoo."""
        place = folder / name
        place.mkdir()
        (place / "archive").write_bytes(zoos.tar(files))
        context = place / "context.tar"
        zoo = archives.repack(place / "archive", context, LIMITS)
        recipe = dockerfile(str(harness.base), Runtime(), bool(zoo.requirements), PackageIndex())
        archives.complete(context, recipe, zoo, ())
        return context

    def build(
        self, harness: EngineHarness, context: Path, name: Reference, lines: list[str]
    ) -> StepCounts:
        return harness.engine.build(
            context, harness.base, name, {"team": "a"}, lines.append, CancellationFlag()
        )

    def test_answers(self, harness: EngineHarness) -> None:
        harness.engine.ping()

    def test_a_pushed_image_is_found_in_the_registry_by_its_tag_and_digest(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        context = self.context(harness, tmp_path, {"m.py": f"x = '{name.tag}'"})
        assert harness.registry.find(name) is None
        steps = self.build(harness, context, name, lines)
        assert steps.layers > steps.cached
        digest = harness.engine.push(name, lines.append, CancellationFlag())
        found = harness.registry.find(name)
        assert found is not None
        assert found.digest == digest
        assert found.nbytes > 0
        assert harness.registry.find(replace(name, tag="", digest=digest)) == found
        assert lines

    def test_another_tag_is_the_same_image(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        context = self.context(harness, tmp_path, {"m.py": f"x = '{name.tag}'"})
        self.build(harness, context, name, lines)
        digest = harness.engine.push(name, lines.append, CancellationFlag())
        harness.registry.tag(name, f"{name.tag}-b")
        found = harness.registry.find(replace(name, tag=f"{name.tag}-b"))
        assert found is not None
        assert found.digest == digest

    def test_a_change_of_the_code_does_not_install_the_requirements_again(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        files = {"requirements.txt": f"{REQUIREMENTS}# {name.tag}\n", "m.py": "x = 1"}
        self.build(harness, self.context(harness, tmp_path, files), name, lines)
        assert any("Collecting toolz" in line for line in lines)
        changed = self.context(harness, tmp_path, {**files, "m.py": "x = 2"}, "d")
        again: list[str] = []
        steps = self.build(harness, changed, replace(name, tag=f"{name.tag}-2"), again)
        assert not any("Collecting" in line for line in again)
        # FROM is not counted; COPY of the zoo, and what comes after it, is done anew.
        assert 4 <= steps.cached < steps.layers

    def test_an_unchanged_context_is_all_cache(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        files = {"m.py": f"x = '{name.tag}'"}
        first = self.build(harness, self.context(harness, tmp_path, files), name, lines)
        second = self.build(harness, self.context(harness, tmp_path, files, "d"), name, lines)
        assert second == StepCounts(first.layers, first.layers - 1)

    def test_a_failing_step_is_a_failed_build_with_its_log(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        files = {"requirements.txt": "no-such-package-anywhere-0\n", "m.py": ""}
        before = harness.leftovers()
        with pytest.raises(BuilderError) as refused:
            self.build(harness, self.context(harness, tmp_path, files), name, lines)
        assert refused.value.failure.reason is Reason.BUILD
        assert any("no-such-package-anywhere-0" in line for line in lines)
        assert harness.leftovers()[1] == before[1]
        assert harness.engine.prune(100)
        assert harness.leftovers() == (0, before[1])

    def test_a_stopped_build_ends_and_leaves_nothing(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        containers = harness.leftovers()[1]
        context = self.context(
            harness, tmp_path, {"requirements.txt": f"toolz # {name.tag}\n", "m.py": ""}
        )
        harness.hold(context)
        cancellation = CancellationFlag()
        begun, ended = threading.Event(), threading.Event()
        failures: list[Exception] = []

        def write_line(line: str) -> None:
            if "RUN" in line:
                begun.set()

        def build() -> None:
            try:
                harness.engine.build(context, harness.base, name, {}, write_line, cancellation)
            except Exception as error:
                failures.append(error)
            ended.set()

        threading.Thread(target=build, daemon=True).start()
        assert begun.wait(DEADLINE_S)
        cancellation.cancel()
        assert ended.wait(DEADLINE_S)
        (failure,) = failures
        assert isinstance(failure, BuilderError)
        assert failure.failure.reason is Reason.CANCELLED
        # The engine may take a moment to end its step.
        _until(lambda: harness.engine.prune(100) and harness.leftovers() == (0, containers))

    def test_a_base_that_is_not_there_is_a_clear_refusal(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        missing = replace(harness.base, digest="sha256:" + "0" * 64)
        context = self.context(harness, tmp_path, {"m.py": ""})
        with pytest.raises(BuilderError) as refused:
            harness.engine.build(context, missing, name, {}, lines.append, CancellationFlag())
        assert refused.value.failure.reason is Reason.REGISTRY

    def test_what_was_not_built_cannot_be_pushed(
        self, harness: EngineHarness, name: Reference, lines: list[str]
    ) -> None:
        with pytest.raises(BuilderError) as refused:
            harness.engine.push(name, lines.append, CancellationFlag())
        assert refused.value.failure.reason is Reason.REGISTRY

    def test_old_images_are_removed_and_new_ones_stay(
        self, harness: EngineHarness, tmp_path: Path, name: Reference, lines: list[str]
    ) -> None:
        names = [replace(name, tag=f"{name.tag}-{number}") for number in range(3)]
        for number, each in enumerate(names):
            context = self.context(harness, tmp_path, {"m.py": str(each)}, f"c{number}")
            self.build(harness, context, each, lines)
        harness.engine.prune(1)
        assert [harness.has_image(each) for each in names] == [False, False, True]


def _until(probe: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not probe():
        assert time.monotonic() < end
        time.sleep(0.05)
