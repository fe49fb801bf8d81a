"""What a new master continues from: the steps that workers of an earlier one still hold.

A snapshot has the origin of its version. A worker that holds values with the same origin at that
version has them from the snapshot's, by the steps that it can tell since (docs/adr/0035).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edl_master.core.generations import Inheritance, VersionOrigin
from edl_master.core.identifiers import Version, WorkerId

WAIT_S = 5.0
"""How long to wait for further workers after the first one."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The values of a worker, and the versions before them whose steps it can tell.

    Attributes:
        version: of the values.
        origins: of these versions, in order, each with the first version that has it; at least
            one.
    """

    version: Version
    origins: tuple[tuple[Version, VersionOrigin], ...]

    def find_origin(self, version: Version) -> VersionOrigin | None:
        """Return the origin of a version; None: the worker does not know it."""
        known = [origin for first, origin in self.origins if first <= version <= self.version]
        return known[-1] if known else None

    @property
    def end(self) -> tuple[VersionOrigin, Version]:
        """The origin and version of the values; larger where they are of a later generation."""
        return self.origins[-1][1], self.version


class Succession:
    """The holdings of an earlier master's workers, until the one is chosen that the job continues.

    Attributes:
        version: of the snapshot.
        origin: of this version.
    """

    def __init__(self, version: Version, origin: VersionOrigin) -> None:
        self.version = version
        self.origin = origin
        self._expected: set[WorkerId] | None = None
        self._offers: dict[WorkerId, Holding | None] = {}
        self._since: float | None = None

    def expect(self, workers: Iterable[WorkerId]) -> None:
        """Wait for these workers, which ran when this master began."""
        self._expected = set(workers)

    def offer(self, worker: WorkerId, holding: Holding | None, now: float) -> None:
        """Record what a worker that wants to train holds; None: nothing."""
        self._since = now if self._since is None else self._since
        self._offers.setdefault(worker, holding)

    def withdraw(self, worker: WorkerId) -> None:
        """Go on without a worker."""
        self._offers.pop(worker, None)
        if self._expected is not None:
            self._expected.discard(worker)

    def refuse(self, worker: WorkerId, now: float) -> None:
        """Treat what a worker holds as nothing: its steps cannot count, or are not told."""
        self._offers[worker], self._since = None, now - WAIT_S

    def is_overdue(self, now: float) -> bool:
        """Return whether the chosen worker has had the time to tell its steps."""
        return self._since is not None and now - self._since >= 2 * WAIT_S

    def has_waited(self, now: float) -> bool:
        """Return whether no worker is waited for any more."""
        if self._since is None:
            return False
        missing = self._expected is None or self._expected - self._offers.keys()
        return not missing or now - self._since >= WAIT_S

    def choose(self) -> WorkerId | None:
        """Return the worker that has what is continued from; None: the snapshot is."""
        fitting = {
            worker: holding.end
            for worker, holding in self._offers.items()
            if holding is not None and holding.find_origin(self.version) == self.origin
        }
        return max(fitting, key=fitting.__getitem__, default=None)

    def decide(self) -> Inheritance:
        """Return what a group begins with that continues from the chosen worker's values."""
        chosen, offers = self.choose(), self._offers
        if chosen is None:
            return Inheritance(self.version, self.origin, (), tuple(offers))
        best = offers[chosen]
        assert best is not None
        holders = tuple(w for w, each in offers.items() if each and each.end == best.end)
        joining = tuple(worker for worker in offers if worker not in holders)
        return Inheritance(best.version, best.end[0], holders, joining)
