"""What to do when a job's master has died: start it again, and when to stop trying.

Two counts, each over deaths in a row. A master that something kills from outside is started
again for as long as it gets to live a little in between; one that ends by itself, soon after its
start, would do so for ever, and three times are enough to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp

KILLS = frozenset((1, 2, 9, 15))
"""Signals by which others end a process: SIGHUP, SIGINT, SIGKILL, SIGTERM."""

SOON_S = 20.0
"""A master that ends by itself after so long has worked; before, its start is to blame."""

OWN_DEATHS = 3
"""So many deaths in a row by itself, each soon after the start, and it is given up."""

BRIEF_S = 5.0
"""A master that was killed after so long had time to go on with the job."""

BRIEF_LIVES = 20
"""So many kills in a row without that much time: lack of memory, most often."""

BACKOFF_S = 0.25
BACKOFF_MAX_S = 5.0
"""The first start has no wait; then a quarter of a second, doubling: a job must not wait long
for a master that can live, and a machine must not be busy with one that cannot."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the master again after ``delay_s``."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It would die again. ``why`` is a sentence for the job's last word."""

    why: str


@dataclass(slots=True)
class Deaths:
    """The deaths in a row of one job's masters."""

    own: int = 0
    brief: int = 0

    def after(self, lived_s: float, signal: int | None, exit_code: int | None) -> Restart | GiveUp:
        """Count one death and decide.

        Args:
            lived_s: from its start, or from when it was found, to its end.
            signal: that ended it; None if it ended by itself.
            exit_code: None if unknown; a death of which nothing is known was not its own.
        """
        killed = signal in KILLS or (signal is None and exit_code is None)
        self.own = 0 if killed or lived_s >= SOON_S else self.own + 1
        self.brief = 0 if lived_s >= BRIEF_S else self.brief + 1
        how = f"by signal {signal}" if signal else f"with exit code {exit_code}"
        if self.own >= OWN_DEATHS:
            return GiveUp(f"the job's master ended by itself {self.own} times in a row, {how}")
        if self.brief >= BRIEF_LIVES:
            return GiveUp(
                f"the job's master was killed {self.brief} times in a row, each time within"
                f" {BRIEF_S:.0f} s"
            )
        row = max(self.own, self.brief)
        return Restart(min(BACKOFF_MAX_S, ldexp(BACKOFF_S, row - 2)) if row > 1 else 0.0)
