"""The blocking steps of a build: prepare its context, then build and push its image."""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from edl_builder.adapters import archives, build_store
from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.adapters.git import COMMIT, Git
from edl_builder.adapters.image_records import ImageRecords
from edl_builder.core import events as ev
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.build import BuildResult, Phase
from edl_builder.core.build_request import BuildRequest
from edl_builder.core.content import Runtime, content_key
from edl_builder.core.failure import BuilderError, Failure, Reason
from edl_builder.core.identifiers import BuildId, BuildIdentity
from edl_builder.core.ports import Engine, Registry, RegistryImage, Signer, WriteLine
from edl_builder.core.provenance import Materials, statement
from edl_builder.core.recipe import KEY_LABEL, PackageIndex, dockerfile
from edl_builder.core.references import Reference, key_tag

log = logging.getLogger(__name__)

_OCI = "org.opencontainers.image."

HandleEvent = Callable[[ev.Event], None]


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of the worker, and where pip finds these and the zoo's requirements.

    Attributes:
        index: for pip.
        wheels: of the worker.
        requirements: of the worker.
    """

    index: PackageIndex = field(default_factory=PackageIndex)
    wheels: tuple[Path, ...] = ()
    requirements: tuple[str, ...] = ()


class BuildSteps:
    """The steps of a build, each blocking.

    Args:
        engine: builds and pushes.
        registry: looks up.
        git: fetches.
        limits: of archives.
        packages: for pip.
        records: of the images that were built.
        signer: signs what is handed out; None without a key.
    """

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        git: Git,
        limits: ArchiveLimits,
        packages: Packages,
        records: ImageRecords,
        signer: Signer | None = None,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._git = git
        self._records = records
        self._limits = limits
        self._signer = signer
        self._index = packages.index
        self._wheels = packages.wheels
        self._runtime = Runtime(
            tuple((wheel.name, _sha256(wheel)) for wheel in packages.wheels), packages.requirements
        )

    def prepare(
        self,
        build: BuildId,
        request: BuildRequest,
        folder: Path,
        handle_event: HandleEvent,
        write_line: WriteLine,
        cancellation: CancellationFlag,
    ) -> ev.Event:
        """Turn the source into a context, or find the image that the registry already has."""
        archive, context = folder / build_store.ARCHIVE, folder / build_store.CONTEXT
        if request.git is not None:
            archive = self._git.fetch(request.git, folder, write_line, cancellation)
        handle_event(ev.ResolvingStarted(build))
        zoo = archives.repack(archive, context, self._limits, cancellation.check)
        archive.unlink()
        write_line(f"{len(zoo.files)} files, {zoo.nbytes} bytes")
        base = self._resolve(request.base)
        write_line(f"base {base}")
        cancellation.check()
        recipe = dockerfile(
            str(base), self._runtime, bool(zoo.requirements), self._index, request.cache
        )
        repository = request.repository.repository
        labels = _labels(request, base, folder)
        key = content_key(zoo, base.digest, self._runtime, recipe, labels, repository)
        write_line(f"key {key}")
        identity = BuildIdentity(repository, key, request.tag)
        found = self._look_up(request, identity)
        if found is not None:
            write_line("the registry has this image")
            return ev.BuildSucceeded(build, _result(request, identity, found, (0, 0), reused=True))
        archives.complete(context, recipe, zoo, self._wheels)
        build_store.write_ready(folder, base)
        return ev.ContextPrepared(build, identity)

    def build(
        self,
        build: BuildId,
        request: BuildRequest,
        identity: BuildIdentity,
        folder: Path,
        handle_event: HandleEvent,
        write_line: WriteLine,
        cancellation: CancellationFlag,
    ) -> ev.Event:
        """Turn the context into an image in the registry."""
        found = self._look_up(request, identity)
        if found is not None:
            write_line("the registry has this image by now")
            return ev.BuildSucceeded(build, _result(request, identity, found, (0, 0), reused=True))
        base = build_store.read_ready(folder)
        if base is None:
            raise BuilderError(
                Reason.RESTARTED, "the build's context is gone", remedy="Send the zoo again."
            )
        name = replace(request.repository, tag=key_tag(identity.key))
        labels = {**_labels(request, base, folder), KEY_LABEL: identity.key}
        context = folder / build_store.CONTEXT
        steps = self._engine.build(context, base, name, labels, write_line, cancellation)
        handle_event(ev.PushStarted(build))
        digest = self._engine.push(name, write_line, cancellation)
        image = replace(name, tag="", digest=digest)
        pushed = self._registry.find(image)
        if pushed is None:
            raise BuilderError(
                Reason.REGISTRY,
                "the registry does not have what was pushed",
                where=str(name),
                remedy="Another program may delete images of this repository; try again.",
            )
        if self._signer is not None:
            write_line("signing")
            self._sign(self._signer, image, build, request, identity, base, folder)
        self._records.add(identity.repository, identity.key, digest)
        if identity.tag:
            self._registry.tag(image, identity.tag)
        return ev.BuildSucceeded(
            build, _result(request, identity, pushed, (steps.layers, steps.cached), reused=False)
        )

    def _sign(
        self,
        signer: Signer,
        image: Reference,
        build: BuildId,
        request: BuildRequest,
        identity: BuildIdentity,
        base: Reference,
        folder: Path,
    ) -> None:
        commit = (folder / COMMIT).read_text() if request.git is not None else ""
        materials = Materials(base, commit, _sha256(folder / build_store.CONTEXT), self._runtime)
        about = statement(image, request, build, identity.key, materials, signer.builder_id)
        signer.attach(image, about)
        signer.sign(image)

    def _resolve(self, base: Reference) -> Reference:
        if base.digest:
            return base
        found = self._registry.find(replace(base, tag=base.tag or "latest"))
        if found is None:
            raise BuilderError(
                Reason.NOT_FOUND,
                f"there is no base image {base}",
                where="base image",
                remedy="Check its name, and the builder's credential for its registry.",
            )
        return replace(base, tag="", digest=found.digest)

    def _look_up(self, request: BuildRequest, identity: BuildIdentity) -> RegistryImage | None:
        """Find an image that this builder has built, by its digest: anyone who pushes sets tags."""
        digest = self._records.find(identity.repository, identity.key)
        if digest is None:
            # A registry that refuses the builder says so before the build, not after it.
            self._registry.find(replace(request.repository, tag=key_tag(identity.key)))
            return None
        image = replace(request.repository, tag="", digest=digest)
        found = self._registry.find(image)
        if found is None or found.digest != digest:
            return None
        if self._signer is not None:  # it may have been built before there was a key
            self._signer.sign(image)
        if identity.tag:
            self._registry.tag(image, identity.tag)
        return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _labels(request: BuildRequest, base: Reference, folder: Path) -> dict[str, str]:
    """The caller's labels, and where the image comes from."""
    labels = dict(request.labels)
    labels[f"{_OCI}base.name"] = str(replace(base, digest="", tag=request.base.tag))
    labels[f"{_OCI}base.digest"] = base.digest
    if request.git is not None:
        labels[f"{_OCI}source"] = str(request.git.source.url)
        labels[f"{_OCI}revision"] = (folder / COMMIT).read_text()
    return labels


def _result(
    request: BuildRequest,
    identity: BuildIdentity,
    found: RegistryImage,
    steps: tuple[int, int],
    *,
    reused: bool,
) -> BuildResult:
    return BuildResult(
        image=f"{request.repository.repository}@{found.digest}",
        nbytes=found.nbytes,
        seconds=0.0,  # the state machine knows when the build was requested
        layers=steps[0],
        cached_layers=steps[1],
        reused=reused,
        key=identity.key,
    )


def failure_of(error: Exception, phase: Phase) -> Failure:
    """Return the failure of a build whose work raised an exception."""
    if isinstance(error, BuilderError):
        return error.failure
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(
            Reason.LIMIT,
            "the builder's disk is full",
            where=str(phase),
            remedy="Tell the operator of the builder.",
        )
    log.error("internal error while %s", phase, exc_info=error)
    return Failure(
        Reason.INTERNAL,
        f"internal error of the builder: {type(error).__name__}",
        where=str(phase),
        remedy="The builder's log has the traceback; please report it.",
    )
