"""The ports to builders of images, signatures of images, and the images that the user has used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

from edl.core.image_build import (
    BuilderEndpoint,
    BuildLogLine,
    BuildRequest,
    BuildStatus,
)


class BuilderConnection(Protocol):
    """A builder that has been reached."""

    @property
    def address(self) -> str:
        """Where it is."""

    def build(
        self, request: BuildRequest, archive: IO[bytes] | None
    ) -> Iterator[BuildStatus | BuildLogLine]:
        """Start or join a build, and yield its progress. Raises: EdlError."""

    def cancel(self, build: str) -> None:
        """Cancel a build. Raises: EdlError."""


class ImageBuilder(Protocol):
    """Turns a model zoo into an image: a service, or a process of this machine."""

    def pack(self, folder: Path, into: IO[bytes]) -> None:
        """Write a folder as the archive that a builder takes. Raises: EdlError."""

    def connect(
        self, request: BuildRequest, endpoint: BuilderEndpoint, say: Callable[[str], None]
    ) -> AbstractContextManager[BuilderConnection]:
        """Return a context with a builder, which is started if it is one of this machine."""


class ImageSignatures(Protocol):
    """Who has signed an image."""

    def check(self, image: str, key_file: str) -> None:
        """Check that one of the keys of a file has signed an image. Raises: EdlError."""

    def provenance(self, image: str, key_file: str) -> Mapping[str, Any] | None:
        """Return the signed statement of how an image was made; None if there is none."""


class ImageRecord(Protocol):
    """The images in which the user has run jobs."""

    def add(self, image: str) -> None:
        """Record an image. Raises: OSError."""
