"""A folder of numbered releases."""

from __future__ import annotations

from typing import Protocol


class ReleaseFolder(Protocol):
    """A folder that has releases, or will have them; a path, or the URI of a place in a store."""

    def list(self) -> list[int]:
        """Return the numbers of the releases, ascending. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def place_of(self, number: int) -> str:
        """Return where a release is, or will be."""

    def add(self, number: int, model: str) -> None:
        """Make a release of a trained model. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def has(self, number: int, model: str) -> bool:
        """Return whether a release is this trained model. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def remove(self, number: int) -> None:
        """Remove a release. Raises: EdlError: OUTPUT_UNWRITABLE."""
