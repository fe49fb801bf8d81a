"""A worker of the model of replicated training, and how often faults may happen to it."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from edl_master.core.generations import VersionOrigin
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.succession import Holding

Added: TypeAlias = tuple[tuple[int, int | None], ...]
"""What each member has added to a step: a record, or None."""
Action: TypeAlias = tuple[str, int]
"""What happens, and the worker that it happens to."""


@dataclass(slots=True)
class Member:
    """A worker that lives.

    Attributes:
        generation: the one that it is in, of this incarnation of the master.
        history: the steps in its values; None: it has no values.
        origins: of the versions whose steps it has kept, see ``Holding``.
        record: the one that it trains next.
        reported: length of the history at the last report.
        counted: how many steps count, as far as it knows.
        stopped: it has ended its generation.
        aside: values that it is to send to the store, once it has them.
        is_fenced: the master has given it up.
    """

    incarnation: int = 0
    generation: int | None = None
    history: tuple[Added, ...] | None = None
    origins: tuple[tuple[int, VersionOrigin], ...] = ()
    record: int | None = None
    reported: int | None = None
    counted: int = 0
    stopped: bool = False
    aside: int | None = None
    leaves: bool = False
    is_fenced: bool = False

    def tell(self, worker: int, *, complete: bool) -> list[dict[WorkerId, int | None]]:
        """Return what this member, or all, have added to the last steps."""
        steps = () if self.history is None else self.history[self.counted :]
        return [
            {WorkerId(w): record for w, record in step if complete or w == worker} for step in steps
        ]

    def fetch(self, history: tuple[Added, ...], origin: VersionOrigin) -> None:
        """Use the values of a version with this origin."""
        self.history, self.origins = history, ((len(history), origin),)

    def add(self, step: Added) -> None:
        """Apply a step of its generation."""
        assert self.history is not None
        self.history = (*self.history, step)
        origin = VersionOrigin(str(self.incarnation), self.generation or 0)
        if self.origins[-1][1] != origin:
            self.origins = (*self.origins, (len(self.history), origin))

    def forget_until(self, version: int) -> None:
        """Forget the steps up to a version that is saved."""
        known = [origin for first, origin in self.origins if first <= version]
        if known:
            later = tuple(each for each in self.origins if each[0] > version)
            self.origins = ((version, known[-1]), *later)

    @property
    def holding(self) -> Holding | None:
        """The values that it names to a new master."""
        if self.history is None:
            return None
        origins = tuple((Version(first), origin) for first, origin in self.origins)
        return Holding(Version(len(self.history)), origins)

    def meet(self, incarnation: int) -> None:
        """Stop, as there is another master."""
        self.incarnation, self.generation, self.record, self.reported = (
            incarnation,
            None,
            None,
            None,
        )
        self.counted, self.stopped, self.aside, self.is_fenced = 0, False, None, False

    def key(self) -> tuple[object, ...]:
        """Return what makes two members the same."""
        return _key(self)

    def copy(self) -> Member:
        """Return a member that is the same."""
        return Member(*_key(self))


_key = attrgetter(*Member.__slots__)


class Budget(NamedTuple):
    """How often something may still happen."""

    kill: int = 0
    fence: int = 0
    join: int = 0
    leave: int = 0
    save: int = 0
    restart: int = 0
    flush: int = 0
    accuse: int = 0
