"""How far the members of a replica group have come, as they have reported."""

from __future__ import annotations

from typing import Generic

from edl_master.core.generations import Claim, Generation, VersionOrigin
from edl_master.core.identifiers import Version, WorkerId


class GroupProgress(Generic[Claim]):
    """The versions of the members, and the steps between what counts and the farthest of them.

    Attributes:
        counted: the version that all counted steps make.
        stored: the version whose values the store has.
        generation: the present one; None while there are no members.
        is_ending: whether its members have been told to stop.
        steps: what is known of those that do not count yet, by the version that they make.
        origin: of the version that the present generation begins with.
        stored_origin: of the version whose values the store has.
        is_lost: whether the values are gone; nothing else happens then.
    """

    def __init__(self, version: Version, origin: VersionOrigin, incarnation: str) -> None:
        self.counted = self.stored = version
        self.origin = self.stored_origin = origin
        self.generation: Generation | None = None
        self.is_ending = False
        self.is_lost = False
        self.steps: dict[Version, dict[WorkerId, Claim]] = {}
        self._incarnation = incarnation
        self._reached: dict[WorkerId, Version | None] = {}  # of all members that are not lost
        self._behind: set[WorkerId] = set()  # those that lack the next step to count
        self._stopped: set[WorkerId] = set()
        self._complete: set[WorkerId] = set()  # of these, those that have reported for all others
        self._is_replaced = False  # what members of the present generation have is of no use

    @property
    def is_settled(self) -> bool:
        """Whether all steps count that were made before this generation.

        Then it is known how much of a task counts that no member works on.
        """
        begun = 0 if self.generation is None else self.generation.version
        return not self.is_ending and self.counted >= begun

    @property
    def is_saved(self) -> bool:
        """Whether the store has the values of what counts."""
        return self.counted == self.stored

    def is_member(self, worker: WorkerId) -> bool:
        """Return whether a worker takes part in the present generation."""
        return worker in self._reached

    def _find_common(self) -> Version:
        """Return the version that all members have, if all is known of the steps up to it."""
        if self.is_ending:
            if len(self._stopped) < len(self._reached) or self._lacks_claims():
                return self.counted
        elif self._behind:
            return self.counted
        versions = (version for version in self._reached.values() if version is not None)
        return min(versions, default=self.counted)

    def _find_farthest(self) -> Version | None:
        """Return the highest version that a member has; None if no member has values."""
        return max((v for v in self._reached.values() if v is not None), default=None)

    def _lacks_claims(self) -> bool:
        """Whether one may have added to a step that it has not told: it is gone, or behind."""
        present, farthest = self.generation, self._find_farthest()
        if present is None or farthest is None or farthest <= max(present.version, self.counted):
            return False
        is_told = any(self._reached[worker] == farthest for worker in self._complete)
        return not is_told and any(self._reached.get(w) != farthest for w in present.members)

    def _compare(self) -> None:
        """Find the members that lack the next step: so that a report need not look at all."""
        self._behind = {
            w for w, version in self._reached.items() if version is None or version <= self.counted
        }

    def _have_all_begun(self, generation: Generation) -> bool:
        """Whether all members have the values that the generation begins with."""
        versions = self._reached.values()
        return all(version is not None and version >= generation.version for version in versions)

    def _find_origin(self, version: Version) -> VersionOrigin:
        """Return the origin of a version that the present generation has begun with, or made."""
        present = self.generation
        if self._is_replaced:
            return self.stored_origin
        if present is None or version <= present.version:
            return self.origin
        return VersionOrigin(self._incarnation, present.number)
