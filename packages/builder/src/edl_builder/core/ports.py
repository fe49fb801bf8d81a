"""Ports to engine, registry and signer; adapters implement them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

from edl_builder.core.references import Reference


class Cancellation(Protocol):
    """The cancellation of the work for a build."""

    def check(self) -> None:
        """Raise BuilderError (CANCELLED) after the cancellation."""

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called on cancellation, at once if it was cancelled already.

        Returns:
            A function that unregisters the callback.
        """


@dataclass(frozen=True, slots=True)
class StepCounts:
    """The number of a build's steps, and how many of them were cached."""

    layers: int
    cached: int


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image in a registry; ``nbytes`` is what a puller downloads."""

    digest: str
    nbytes: int


WriteLine = Callable[[str], None]


class Engine(Protocol):
    """Builds and pushes images.

    Every method raises ``BuilderError``: ENGINE if the engine cannot be reached, BUILD if a step of
    the build fails, REGISTRY if a push or pull is refused, CANCELLED if it was stopped.
    """

    def ping(self) -> None:
        """Return if the engine answers."""

    def build(
        self,
        context: PurePath,
        base: Reference,
        name: Reference,
        labels: Mapping[str, str],
        on_line: WriteLine,
        cancellation: Cancellation,
    ) -> StepCounts:
        """Build a context (a tar file with a Dockerfile) into an image of that name.

        When it returns or raises, no container of the build is left. A step whose inputs are
        those of an earlier build is not run again.
        """

    def push(self, name: Reference, on_line: WriteLine, cancellation: Cancellation) -> str:
        """Push the image of that name; returns its digest in the registry."""

    def prune(self, keep: int) -> bool:
        """Remove half-built images, and all finished ones but the ``keep`` newest.

        Those are what the next builds find their cached steps in. Never called while a build
        runs.

        Returns:
            Whether nothing half-built is left. What was stopped a moment ago may still be in use.
        """


class Registry(Protocol):
    """Looks images up. Every method raises ``BuilderError``: REGISTRY."""

    def find(self, name: Reference) -> RegistryImage | None:
        """Return the image of that name, or None."""

    def tag(self, name: Reference, tag: str) -> None:
        """Give the image of that name, which is there, another tag in its repository."""


class Signer(Protocol):
    """Signs images in their registries. Every method raises ``BuilderError``: REGISTRY."""

    @property
    def builder_id(self) -> str:
        """Names the builder, a URI."""

    def sign(self, image: Reference) -> None:
        """Sign an image, named by its digest; once."""

    def attach(self, image: Reference, statement: Mapping[str, Any]) -> None:
        """Sign a statement about an image, once for each type of predicate."""
