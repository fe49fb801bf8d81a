"""The decisions of a job's supervisor: when a master is started, ended, or given up.

Pure: an observation in, a new state and decisions out (docs/adr/0016).
``edl.adapters.local.supervisor`` makes the observations and carries out the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import ldexp

EXTERNAL_SIGNALS = frozenset((1, 2, 9, 15))
"""Signals by which others end a process: SIGHUP, SIGINT, SIGKILL, SIGTERM."""

START_FAILURE_S = 20.0
"""A master that ends by itself later than this has worked; earlier, its start is the cause."""

MAX_START_FAILURES = 3
"""After so many ends in a row by itself, each soon after the start, the master is given up."""

SHORT_LIFE_S = 5.0
"""A master that was killed later than this had time to make progress."""

MAX_SHORT_LIVES = 20
"""After so many kills in a row without that much time the master is given up: most often the
machine lacks memory."""

BACKOFF_S = 0.25
BACKOFF_MAX_S = 5.0
"""The first restart is immediate; then delays double from ``BACKOFF_S`` to ``BACKOFF_MAX_S``."""

SILENCE_S = 30.0
"""A master without a heartbeat for so long is frozen; it records one each second. Half of the
time that workers wait for a master."""

PAUSE_S = 5.0
"""A longer time between two observations means that the supervisor itself was held up."""


@dataclass(frozen=True, slots=True)
class MasterExit:
    """The way in which a master ended.

    Attributes:
        lived_s: from its start, or from when the supervisor found it, to its end.
        signal: that ended the master; None if it ended by itself or if that is unknown.
        exit_code: None if a signal ended the master or if the exit status is unknown.
        listened: whether this job ever had a master that listened.
        start_error: why the process could not be started; empty if it could.
    """

    lived_s: float
    signal: int | None = None
    exit_code: int | None = None
    listened: bool = True
    start_error: str = ""

    @property
    def was_killed(self) -> bool:
        """Whether another process ended the master; an unknown exit status counts as that."""
        if self.signal is None:
            return self.exit_code is None and not self.start_error
        return self.signal in EXTERNAL_SIGNALS

    @property
    def words(self) -> str:
        """The exit status for messages."""
        if self.signal is not None:
            return f"by signal {self.signal}"
        return f"with exit code {self.exit_code}"


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the master again after ``delay_s``."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The verdict that another start would fail too; ``why`` is a sentence for the job's error."""

    why: str


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Counts the exits in a row of one job's masters.

    Attributes:
        start_failures: exits by themselves, each soon after the start.
        short_lives: exits of any kind, each after a very short life.
    """

    start_failures: int = 0
    short_lives: int = 0

    def after(self, end: MasterExit) -> tuple[RestartPolicy, Restart | GiveUp]:
        """Count one exit and decide."""
        failed = not end.was_killed and end.lived_s < START_FAILURE_S
        policy = RestartPolicy(
            self.start_failures + 1 if failed else 0,
            self.short_lives + 1 if end.lived_s < SHORT_LIFE_S else 0,
        )
        return policy, policy._verdict(end)

    def _verdict(self, end: MasterExit) -> Restart | GiveUp:
        if end.start_error:
            return GiveUp(f"the job's master cannot be started: {end.start_error}")
        if not end.listened and not end.was_killed:
            return GiveUp(f"the job's master ended {end.words} before it listened")
        if self.start_failures >= MAX_START_FAILURES:
            return GiveUp(
                f"the job's master ended by itself {self.start_failures} times in a row,"
                f" {end.words}"
            )
        if self.short_lives >= MAX_SHORT_LIVES:
            return GiveUp(
                f"the job's master was killed {self.short_lives} times in a row, each time within"
                f" {SHORT_LIFE_S:.0f} s"
            )
        row = max(self.start_failures, self.short_lives)
        return Restart(min(BACKOFF_MAX_S, ldexp(BACKOFF_S, row - 2)) if row > 1 else 0.0)


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a job as its supervisor sees it at one moment.

    Attributes:
        is_wanted: the job's directory says that its master has to run.
        is_over: the job has a final state.
        has_master: a master holds the job's directory.
        heartbeat: any value that changes while the master makes progress.
        exit: of the supervisor's child, if it ended since the previous observation.
        lost_race: the child ended because another master held the directory.
    """

    is_wanted: bool
    is_over: bool
    has_master: bool
    heartbeat: int
    exit: MasterExit | None = None
    lost_race: bool = False


class Decision(Enum):
    """The next action of the supervisor."""

    START_MASTER = auto()
    END_MASTER = auto()
    END_WORKERS = auto()
    LEAVE = auto()


class Master(Enum):
    """The master, as the supervisor knows it."""

    NONE = auto()
    CHILD = auto()
    ORPHAN = auto()
    """Started by an earlier supervisor, which was killed: only the end can be observed."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """The state of a supervisor; all times are in seconds of a monotonic clock.

    Attributes:
        master: what runs at the moment.
        started_at: when the master started, or was found.
        heartbeat: the last one, which came at ``alive_at``.
        observed_at: time of the previous observation; None before the first one.
        retry_at: no master is started before that time.
        policy: the exits so far.
    """

    master: Master = Master.NONE
    started_at: float = 0.0
    heartbeat: int = 0
    alive_at: float = 0.0
    observed_at: float | None = None
    retry_at: float = 0.0
    policy: RestartPolicy = field(default_factory=RestartPolicy)

    def observe(
        self, seen: Observation, now: float
    ) -> tuple[Supervision, tuple[Decision | GiveUp, ...]]:
        """Take an observation; return the next state, and what has to be done in order."""
        state = self._after_pause(now)
        if seen.exit is not None or seen.lost_race:
            state = replace(state, master=Master.NONE)
        if not seen.is_wanted:
            return state, (Decision.LEAVE,)
        if seen.is_over:
            # A master may keep the page of a job that is over.
            if seen.has_master or state.master is Master.CHILD:
                return state, ()
            return state, (Decision.END_WORKERS, Decision.LEAVE)
        if state.master is Master.ORPHAN and not seen.has_master:
            unknown = MasterExit(now - state.started_at)
            return replace(state, master=Master.NONE)._after_exit(unknown, now)
        if seen.exit is not None:
            return state._after_exit(seen.exit, now)
        if state.master is Master.NONE:
            return state._without_master(seen, now)
        return state._with_master(seen, now)

    def _after_pause(self, now: float) -> Supervision:
        """Extend the master's deadline by the time in which it was not observed."""
        pause_s = 0.0 if self.observed_at is None else now - self.observed_at
        extended_s = pause_s if pause_s > PAUSE_S else 0.0
        return replace(self, observed_at=now, alive_at=self.alive_at + extended_s)

    def _after_exit(
        self, end: MasterExit, now: float
    ) -> tuple[Supervision, tuple[Decision | GiveUp, ...]]:
        policy, verdict = self.policy.after(end)
        state = replace(self, policy=policy)
        match verdict:
            case Restart(delay_s):
                return replace(state, retry_at=now + delay_s), ()
            case GiveUp():
                return state, (verdict, Decision.END_WORKERS, Decision.LEAVE)

    def _without_master(
        self, seen: Observation, now: float
    ) -> tuple[Supervision, tuple[Decision | GiveUp, ...]]:
        begun = replace(self, started_at=now, heartbeat=seen.heartbeat, alive_at=now)
        if seen.has_master:
            return replace(begun, master=Master.ORPHAN), ()
        if now < self.retry_at:
            return self, ()
        return replace(begun, master=Master.CHILD), (Decision.START_MASTER,)

    def _with_master(
        self, seen: Observation, now: float
    ) -> tuple[Supervision, tuple[Decision | GiveUp, ...]]:
        if seen.heartbeat != self.heartbeat:
            return replace(self, heartbeat=seen.heartbeat, alive_at=now), ()
        if now - self.alive_at <= SILENCE_S:
            return self, ()
        return replace(self, alive_at=now), (Decision.END_MASTER,)
