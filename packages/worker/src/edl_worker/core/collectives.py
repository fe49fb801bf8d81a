"""The ports through which the members of a generation exchange numbers without the master."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from edl_worker.core.replicas import Generation, Part

NOTE_BYTES = 500
"""The longest note that a member adds to its numbers."""


class GenerationEnded(Exception):
    """The generation is over, or one of its members is gone."""


class PeerUnreachable(GenerationEnded):
    """A member cannot be reached, although the master takes it for alive.

    Attributes:
        worker: number of that member.
        cause: why it cannot be reached.
    """

    def __init__(self, worker: int, cause: str) -> None:
        super().__init__(f"worker {worker} cannot be reached: {cause}")
        self.worker = worker
        self.cause = cause


class CollectiveGroup(Protocol):
    """One member's end of what a generation of several members exchanges.

    All members make the same calls in the same order.
    """

    def is_awaited(self, within_s: float) -> bool:
        """Wait a little until a peer waits for this member, or is gone; return whether one does."""
        ...

    def all_reduce(
        self, values: Sequence[npt.NDArray[Any]], weight: float, note: bytes
    ) -> tuple[list[npt.NDArray[Any]], list[bytes]]:
        """Return the mean or sum of what all members add, and their notes by rank.

        Every member gets the same bits.

        Args:
            values: an array for each part; not read if the weight is 0.
            weight: of the values; 0: this member adds nothing.
            note: at most ``NOTE_BYTES`` long.

        Returns:
            What the parts say, valid until the next call, and the notes.

        Raises:
            GenerationEnded: there is no sum, or this member cannot know that there is one.
            ValueError: the note is too long.
        """
        ...

    def broadcast(self, content: memoryview) -> None:
        """Copy bytes of the member of rank 0 to all others.

        Args:
            content: the bytes; of the others, where to write them. Of the same size for all.

        Raises:
            GenerationEnded: not all members have them.
        """
        ...

    def close(self) -> None:
        """Leave: the peers notice."""


class Collectives(Protocol):
    """The way in which this worker meets the other members of a generation."""

    @property
    def address(self) -> str:
        """``host:port`` at which peers reach this worker; empty if they need none."""
        ...

    def meet(
        self, generation: Generation, parts: Sequence[Part], is_over: Callable[[], bool]
    ) -> CollectiveGroup:
        """Meet the other members of a generation, of which there are some.

        Args:
            generation: of which this worker is a member.
            parts: the numbers that they add up; the same for all.
            is_over: whether the master has ended the generation; may be called often.

        Raises:
            GenerationEnded: before all members were there.
            EdlError: this worker cannot exchange numbers with others.
        """
        ...

    def release(self) -> None:
        """Give back what is kept for the next generation of the same members."""
