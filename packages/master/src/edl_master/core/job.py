"""The master's heart: facts in, decisions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edl_master.core.effects import Effect
from edl_master.core.events import Event
from edl_master.core.settings import JobSettings
from edl_master.core.view import JobView


class InvalidTransition(Exception):
    """The master's own parts contradict each other; carries the last facts as ``story``."""

    story: tuple[tuple[float, Event], ...]


class JobState:
    """One job, whole. Not safe for threads: its owner hands it one fact at a time.

    Args:
        settings: what to do and under which rules.
        data: records of each file of the main data.
        validation: records of each file of the validation data; empty: no evaluation.
        data_names, validation_names: names of the files for messages; may be left out.
    """

    def __init__(
        self,
        settings: JobSettings,
        data: tuple[int, ...],
        validation: tuple[int, ...] = (),
        *,
        data_names: Sequence[str] = (),
        validation_names: Sequence[str] = (),
    ) -> None:
        raise NotImplementedError

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one fact and answer with what is to be done, in order.

        The first ``Tick`` begins the job. ``now`` is in seconds of a monotonic clock.

        Raises:
            InvalidTransition: the master's own parts contradict each other.
        """
        raise NotImplementedError

    def view(self, now: float) -> JobView:
        """Say what the job looks like now."""
        raise NotImplementedError

    def snapshot(self) -> dict[str, Any]:
        """Return the position as JSON-able values; small, whatever the size of the data.

        The owner lets no fact in between this and the plane's own snapshot.
        """
        raise NotImplementedError

    @classmethod
    def restore(
        cls,
        settings: JobSettings,
        data: tuple[int, ...],
        validation: tuple[int, ...],
        snapshot: Mapping[str, Any],
        *,
        data_names: Sequence[str] = (),
        validation_names: Sequence[str] = (),
    ) -> JobState:
        """Make a job that goes on where the snapshot was taken, with no workers yet.

        Bodies that register before the first ``Tick`` are adopted; that Tick starts the rest.

        Raises:
            ValueError: the snapshot is of other data or another order of tasks.
        """
        raise NotImplementedError

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself; for tests."""
        raise NotImplementedError
