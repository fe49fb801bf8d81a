"""From a model zoo to an image that a job can run in: built by a service, or here."""

from __future__ import annotations

import queue
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Protocol

from edl import codec
from edl.adapters import (
    container_engine,
    git_checkout,
    local_builder,
    preflight_checks,
    zoo_archive,
)
from edl.adapters.builder_client import BuilderClient
from edl.core.image_build import (
    BuilderEndpoint,
    BuildLogLine,
    BuildRequest,
    BuildStatus,
    BuiltImage,
    service_of,
)
from edl.core.locations import scheme
from edl.core.options import Verb
from edl.core.problem import usage
from edl.core.submission import Submission
from edl_proto.errors import EdlError
from edl_proto.git_source import GitSource
from edl_proto.v1 import error_pb2

_TICK_S = 0.2


class BuildDisplay(Protocol):
    """Shows a build while it is waited for."""

    def look(self, look: BuildStatus) -> None:
        """The build as it is now."""

    def line(self, text: str) -> None:
        """A line of its log."""

    def say(self, text: str) -> None:
        """A message to the user."""

    def tick(self) -> None:
        """Some time has passed."""

    def close(self) -> None:
        """Leave the terminal as it was. Harmless when repeated."""


def build(order: BuildRequest, service: BuilderEndpoint, display: BuildDisplay) -> BuiltImage:
    """Have an image built, and wait for it.

    Raises:
        EdlError: what kept it from being built.
        KeyboardInterrupt: with a note that says what becomes of the build.
    """
    with ExitStack() as opened:
        opened.callback(display.close)
        archive = None
        if isinstance(order.zoo, str):
            archive = opened.enter_context(tempfile.TemporaryFile())
            zoo_archive.pack(Path(order.zoo), archive)
        address = service.address
        if service.is_local:
            display.look(BuildStatus("", "starting"))
            address = opened.enter_context(local_builder.running(order, service, display.say))
        link = opened.enter_context(BuilderClient(address, service))
        return _BuildSession(link, order, archive, service.is_local, display).run()


class _BuildSession:
    """One build. The stream is read by a thread of its own, so that time passes here."""

    def __init__(
        self,
        link: BuilderClient,
        order: BuildRequest,
        archive: IO[bytes] | None,
        is_local: bool,
        display: BuildDisplay,
    ) -> None:
        self._link = link
        self._order = order
        self._archive = archive
        self._is_local = is_local
        self._display = display
        self._news: queue.SimpleQueue[BuildStatus | BuildLogLine | Exception] = queue.SimpleQueue()
        self._last = BuildStatus("", "starting")

    def run(self) -> BuiltImage:
        threading.Thread(target=self._read, name="build", daemon=True).start()
        try:
            while not self._last.is_final:
                try:
                    news = self._news.get(timeout=_TICK_S)
                except queue.Empty:
                    self._display.tick()
                    continue
                match news:
                    case Exception():
                        raise news
                    case BuildLogLine():
                        self._display.line(news.text)
                    case BuildStatus():
                        self._last = news
                        self._display.look(news)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._leave())
            raise
        if self._last.image is None:
            raise self._failed()
        return self._last.image

    def _read(self) -> None:
        try:
            for news in self._link.build(self._order, self._archive):
                self._news.put(news)
        except Exception as error:
            self._news.put(error)

    def _leave(self) -> str:
        build = self._last.id
        if not build:
            return "The image was not built."
        if self._is_local:
            with suppress(EdlError):  # it ends with its builder
                self._link.cancel(build)
            return "The build was ended. What it had finished is kept by the engine's cache."
        return (
            f"Nobody here waits for build {build} any longer: {self._link.address} ends it in about"
            " a minute, unless somebody else wants the same. The same command takes it up again."
        )

    def _failed(self) -> EdlError:
        if self._last.failure is not None:
            return codec.error_of(self._last.failure)
        return EdlError(
            error_pb2.INTERNAL,
            f"build {self._last.id} ended as {self._last.phase}, without image and reason",
            where=self._link.address,
            remedy="The builder's log may tell.",
        )


def fetched(job: Submission) -> Path | None:
    """A git zoo's folder on this machine; None if there is no such zoo, or a builder fetches it.

    Raises:
        EdlError: it cannot be fetched.
    """
    zoo = job.git_source
    if zoo is None or (job.in_containers and not service_of(job).is_local):
        return None
    return git_checkout.fetch(zoo)


def order_of(job: Submission, folder: Path | None) -> BuildRequest | None:
    """What must be built for a job; None if it needs no image, or has one already.

    Args:
        folder: where its git zoo is on this machine, if it has been fetched.

    Raises:
        Problem: USAGE; it is not said where the image goes, or on what it is built.
    """
    if not job.with_image or image_of(job):
        return None
    zoo: str | GitSource = job.model_zoo
    if job.verb is not Verb.TRAIN:
        message = preflight_checks.trained_model(job.trained_model)
        if scheme(job.trained_model):
            raise usage(
                "the trained model names no image, and it is not on this machine to build one",
                where="--trained-model",
                remedy="Name an image with --image, or copy the trained model here.",
            )
        zoo = str(Path(job.trained_model) / (message.model_zoo or "model_zoo"))
    elif job.git_source is not None:
        # With one's own builder it is also one's own git, with one's own passwords.
        own = service_of(job).is_local and folder is not None
        zoo = str(folder) if own else job.git_source
    return order(job, zoo)


def order(job: Submission, zoo: str | GitSource, tag: str = "") -> BuildRequest:
    """An order with what the options say.

    Raises:
        Problem: USAGE.
    """
    if not job.repository:
        raise usage(
            "it is not said where the image goes",
            where="--repository",
            remedy="Add --repository REGISTRY/PATH, or set repository in edl.toml;"
            " --image takes one that is there.",
        )
    if service_of(job).is_local and not job.base_image and not job.builder_config:
        raise usage(
            "it is not said on what the image is built",
            where="--base-image",
            remedy="Name an image with worker and master (deploy/docker/images.py worker makes"
            " one) with --base-image, or a service that knows one with --builder.",
        )
    return BuildRequest(zoo, job.repository, tag, job.base_image, job.git_credential)


def image_of(job: Submission) -> str:
    """The image that a job has already: named by the user, or by the trained model."""
    if job.image or job.verb is Verb.TRAIN or not job.in_containers:
        return job.image
    return preflight_checks.trained_model(job.trained_model).docker_commit_id


def at_hand(url: str, image: str, display: BuildDisplay) -> None:
    """See to it that the engine has an image. Raises: EdlError."""
    if not container_engine.has_image(url, image):
        display.look(BuildStatus("", "pulling"))
        container_engine.pull(url, image, display.line)
    display.close()
