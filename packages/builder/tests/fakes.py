"""An engine and a registry in memory; they pass the same suite as the real ones.

The engine runs no command, but follows the Dockerfile: each step's cache key is the step before,
its text and the content that it copies. ``RUN`` fails where pip would: a required package whose
name begins with ``no-such-package``.
"""

from __future__ import annotations

import hashlib
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.ports import Cancellation, RegistryImage, StepCounts, WriteLine
from edl_builder.core.references import Reference


class FakeRegistry:
    """Tags to digests, per repository."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: dict[str, dict[str, RegistryImage]] = {}
        self.down = False

    def put(self, name: Reference, found: RegistryImage) -> None:
        with self._lock:
            images = self._images.setdefault(name.repository, {})
            images[found.digest] = found
            if name.tag:
                images[name.tag] = found

    def forget(self, repository: str) -> None:
        with self._lock:
            del self._images[repository]

    def find(self, name: Reference) -> RegistryImage | None:
        if self.down:
            raise BuilderError(Reason.REGISTRY, f"the registry {name.registry} cannot be reached")
        with self._lock:
            images = self._images.get(name.repository, {})
            return images.get(name.digest or name.tag or "latest")

    def tag(self, name: Reference, tag: str) -> None:
        found = self.find(name)
        if found is None:
            raise BuilderError(Reason.REGISTRY, "no such image")
        with self._lock:
            self._images[name.repository][tag] = found


@dataclass
class FakeEngine:
    """Builds by the book.

    Attributes:
        builds: names of the images built, in order.
        hold: while it is set, ``RUN`` steps wait, until they are stopped.
    """

    registry: FakeRegistry
    hold: threading.Event = field(default_factory=threading.Event)
    builds: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0
    down: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.Condition()
        self._cache: set[str] = set()
        self._images: dict[str, str] = {}
        self.half_built: set[str] = set()
        self._steps: dict[str, list[str]] = {}

    def ping(self) -> None:
        if self.down:
            raise BuilderError(Reason.ENGINE, "the engine cannot be reached")

    def build(
        self,
        context: PurePath,
        base: Reference,
        name: Reference,
        labels: Mapping[str, str],
        on_line: WriteLine,
        cancellation: Cancellation,
    ) -> StepCounts:
        self.ping()
        if self.registry.find(base) is None:
            raise BuilderError(Reason.REGISTRY, f"{base.repository} cannot be pushed or pulled")
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.builds.append(str(name))
        try:
            return self._follow(context, name, labels, on_line, cancellation)
        finally:
            with self._lock:
                self.running -= 1

    def _follow(
        self,
        context: PurePath,
        name: Reference,
        labels: Mapping[str, str],
        on_line: WriteLine,
        cancellation: Cancellation,
    ) -> StepCounts:
        files = _content(context)
        recipe = [line for line in files["Dockerfile"].decode().splitlines() if line]
        steps = [*recipe, *(f"LABEL {k}={v}" for k, v in sorted(labels.items()))]
        state, done, cached, may_cache = "", [], 0, True
        for number, step in enumerate(steps, start=1):
            on_line(f"Step {number}/{len(steps)} : {step}")
            inputs = [state, step]
            if step.startswith("COPY "):
                folder = step.split()[1]
                inputs += [f"{p}:{c.hex()}" for p, c in files.items() if p.startswith(folder)]
            state = hashlib.sha256("\0".join(inputs).encode()).hexdigest()
            may_cache = may_cache and (state in self._cache or step.startswith("FROM "))
            if may_cache and not step.startswith("FROM "):
                cached += 1
                on_line(" ---> Using cache")
            elif step.startswith("RUN "):
                self._run(step, files, on_line, cancellation, done)
            cancellation.check()
            with self._lock:
                self._cache.add(state)
            done.append(state)
        with self._lock:
            self._images[str(name)] = state
            self._steps[str(name)] = done
        return StepCounts(len(steps), cached)

    def _run(
        self,
        step: str,
        files: Mapping[str, bytes],
        on_line: WriteLine,
        cancellation: Cancellation,
        done: list[str],
    ) -> None:
        woken = threading.Event()
        unregister = cancellation.on_cancel(woken.set)
        while self.hold.is_set() and not woken.wait(0.01):
            pass
        unregister()
        try:
            cancellation.check()
            if "-r /opt/edl-requirements" in step:
                for line in (
                    files["requirements/opt/edl-requirements/requirements.txt"]
                    .decode()
                    .splitlines()
                ):
                    on_line(f"Collecting {line}")
                    if line.startswith("no-such-package"):
                        on_line(f"ERROR: No matching distribution found for {line}")
                        raise BuilderError(Reason.BUILD, "the build failed: pip", detail=line)
        except BuilderError:
            with self._lock:
                self.half_built.update(done[-1:])
            raise

    def push(self, name: Reference, on_line: WriteLine, cancellation: Cancellation) -> str:
        self.ping()
        cancellation.check()
        with self._lock:
            state = self._images.get(str(name))
        if state is None:
            raise BuilderError(Reason.REGISTRY, "an image of this name does not exist")
        on_line("The push refers to repository")
        digest = f"sha256:{state}"
        self.registry.put(name, RegistryImage(digest, 1000 + len(state)))
        return digest

    def prune(self, keep: int) -> bool:
        self.ping()
        with self._lock:
            assert not self.running, "cleaned while a build runs"
            self.half_built.clear()
            for name in list(self._images)[: max(0, len(self._images) - keep)]:
                del self._images[name]
            kept = {state for name in self._images for state in self._steps[name]}
            self._cache &= kept
            return True

    def images(self) -> list[str]:
        with self._lock:
            return list(self._images)


def _content(context: PurePath) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(context) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            found[member.name] = file.read() if file else member.linkname.encode()
    return dict(sorted(found.items()))
