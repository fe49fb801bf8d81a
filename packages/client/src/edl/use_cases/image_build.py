"""Has an image built, by a service or by a builder of this machine, and shows the progress."""

from __future__ import annotations

import queue
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Protocol

from edl import codec
from edl.core.image_build import (
    BuilderEndpoint,
    BuildLogLine,
    BuildRequest,
    BuildStatus,
    BuiltImage,
)
from edl.ports.images import BuilderConnection, ImageBuilder
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.printable import one_line
from edl_runtime.image_names import pinned_name, repository_of

_TICK_S = 0.2
_MAX_MESSAGES = 1000
"""How many messages of a build may wait to be shown."""
_MAX_NAME_LENGTH = 300


class BuildDisplay(Protocol):
    """A display of a build while the user waits for it."""

    def update(self, status: BuildStatus) -> None:
        """Show the newest status."""

    def line(self, text: str) -> None:
        """Show a line of the build's log."""

    def say(self, text: str) -> None:
        """Show a message."""

    def tick(self) -> None:
        """Update elapsed times; called a few times each second."""

    def close(self) -> None:
        """Restore the terminal. Harmless when repeated."""


def build(
    request: BuildRequest, endpoint: BuilderEndpoint, display: BuildDisplay, builder: ImageBuilder
) -> BuiltImage:
    """Have an image built, and wait for it.

    Raises:
        EdlError: what kept it from being built.
        KeyboardInterrupt: with a note that says what happens to the build.
    """
    with ExitStack() as opened:
        opened.callback(display.close)
        archive = None
        if isinstance(request.zoo, str):
            archive = opened.enter_context(tempfile.TemporaryFile())
            builder.pack(Path(request.zoo), archive)
        if endpoint.is_local:
            display.update(BuildStatus("", "starting"))
        client = opened.enter_context(builder.connect(request, endpoint, display.say))
        return _BuildSession(client, request, archive, endpoint.is_local, display).run()


class _BuildSession:
    """One build. A separate thread reads the stream, so that the display is updated in between."""

    def __init__(
        self,
        client: BuilderConnection,
        request: BuildRequest,
        archive: IO[bytes] | None,
        is_local: bool,
        display: BuildDisplay,
    ) -> None:
        self._client = client
        self._request = request
        self._archive = archive
        self._is_local = is_local
        self._display = display
        # A service may send lines faster than they are shown.
        self._messages: queue.Queue[BuildStatus | BuildLogLine | Exception] = queue.Queue(
            _MAX_MESSAGES
        )
        self._last = BuildStatus("", "starting")

    def run(self) -> BuiltImage:
        threading.Thread(target=self._read, name="build", daemon=True).start()
        try:
            while not self._last.is_final:
                try:
                    message = self._messages.get(timeout=_TICK_S)
                except queue.Empty:
                    self._display.tick()
                    continue
                match message:
                    case Exception():
                        raise message
                    case BuildLogLine():
                        self._display.line(message.text)
                    case BuildStatus():
                        self._last = message
                        self._display.update(message)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._leave())
            raise
        if self._last.image is None:
            raise self._failure()
        return self._check_image(self._last.image)

    def _read(self) -> None:
        try:
            for message in self._client.build(self._request, self._archive):
                self._messages.put(message)
        except Exception as error:
            self._messages.put(error)

    def _leave(self) -> str:
        build = self._last.id
        if not build:
            return "The image was not built."
        if self._is_local:
            with suppress(EdlError):  # the build ends with its builder in any case
                self._client.cancel(build)
            return "The build was cancelled. Finished steps stay in the engine's cache."
        return (
            f"Build {build} continues for about a minute, longer if other callers wait for it; then"
            f" {self._client.address} cancels it. The same command attaches to it again."
        )

    def _check_image(self, image: BuiltImage) -> BuiltImage:
        """Return the image if it is one of the requested repository, by its digest.

        Raises:
            EdlError: BUILDER_UNAVAILABLE; it is another one.
        """
        repository = repository_of(self._request.repository)
        if repository_of(image.name) == repository and pinned_name(image.name):
            return image
        raise EdlError(
            ErrorCode.BUILDER_UNAVAILABLE,
            f"the builder has built {one_line(image.name[:_MAX_NAME_LENGTH])}, which is no image"
            f" of {repository} by its digest",
            where=self._client.address,
            remedy="Check host and port in --builder, and whether the builder is edl's.",
        )

    def _failure(self) -> EdlError:
        if self._last.failure is not None:
            return codec.error_of(self._last.failure)
        return EdlError(
            ErrorCode.INTERNAL,
            f"build {self._last.id} ended as {self._last.phase}, without an image or a reason",
            where=self._client.address,
            remedy="See the log of the builder.",
        )
