"""Finds a worker that sends heartbeats but makes no progress: name it, ask for its stacks, stop it.

How long is too long is a multiple of what steps of this job usually take. The first step of a task
is measured apart, since it builds the pipeline and may compile; while nothing is known, for a task
without steps, and for loading the model file, there are long times of their own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from statistics import median

STEPS_REMEMBERED = 64
"""Enough for a median that one odd step does not move; a job's steps change slowly."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a worker may get nowhere. In seconds, but ``steps`` and ``starts``."""

    steps: float = 20.0
    """Times the median step."""
    least_s: float = 20.0
    """Even where steps take milliseconds: a slow disk, a pause of the machine."""
    starts: float = 5.0
    """Times the longest first step of a task lately."""
    start_s: float = 60.0
    """The least for the first step of a task."""
    first_s: float = 300.0
    """While the job has not done a first step of a task."""
    whole_task_s: float = 900.0
    """For a task without steps: evaluation, prediction, export."""
    load_s: float = 600.0
    """For loading the model file, which may download what it starts from."""
    ask_s: float = 300.0
    """For a worker without a task to ask for one, which takes it a second: as long as a step may
    take of which nothing is known, since it may still be at one of a task that it has lost."""
    stacks_s: float = 5.0
    """From asking for the stacks to acting without them."""


class Pace(Enum):
    """What a worker does, and so how it can be told that it gets somewhere."""

    STEPS = auto()
    """A task that tells of every step."""
    WHOLE_TASK = auto()
    LOADING = auto()
    """The model file, before any task; then its first values go to the master."""
    ASKING = auto()
    """It has no task, so it should ask for one."""


class StallVerdict(Enum):
    """What is to be done about a worker now."""

    NOTHING = auto()
    ASK = auto()
    """It is under suspicion: ask for its stacks."""
    END = auto()
    """It had its time: end the body, and lease its task again."""


@dataclass(slots=True)
class Watch:
    """What is known about the progress of one body."""

    since: float
    """When it last got something done, or was given its present task."""
    stepped: bool = False
    """Whether it has done a step of its present task."""
    asked_at: float | None = None
    """When its stacks were asked for: it is under suspicion."""
    stacks: str = ""

    def begin(self, now: float) -> None:
        """The body turns to a task."""
        self.since, self.stepped, self.asked_at, self.stacks = now, False, None, ""

    def extend_deadlines(self, pause_s: float) -> None:
        """Do not count time in which nothing could be heard."""
        self.since += pause_s
        if self.asked_at is not None:
            self.asked_at += pause_s


class StallDetector:
    """The pace of a job's steps, and who falls far behind it."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._steps: deque[float] = deque(maxlen=STEPS_REMEMBERED)
        self._starts: deque[float] = deque(maxlen=STEPS_REMEMBERED)

    def stepped(self, watch: Watch, now: float) -> None:
        """A body did a step; what came between two of them is one step's length."""
        (self._steps if watch.stepped else self._starts).append(now - watch.since)
        watch.since, watch.stepped = now, True
        watch.asked_at, watch.stacks = None, ""

    @property
    def step_s(self) -> float | None:
        """The median of the last steps, whoever did them; None before the first."""
        return median(self._steps) if self._steps else None

    def limit_s(self, watch: Watch, pace: Pace) -> float:
        """How long this body may get nowhere."""
        patience = self._patience
        if pace is Pace.LOADING:
            return patience.load_s
        if pace is Pace.ASKING:
            return patience.ask_s
        if pace is Pace.WHOLE_TASK:
            return patience.whole_task_s
        if watch.stepped:
            return max(patience.least_s, patience.steps * (self.step_s or patience.first_s))
        if not self._starts:
            return patience.first_s
        return max(patience.start_s, patience.starts * max(self._starts))

    def judge(self, watch: Watch, now: float, pace: Pace) -> StallVerdict:
        """Decide about a body that is heard."""
        if watch.asked_at is None:
            if now - watch.since <= self.limit_s(watch, pace):
                return StallVerdict.NOTHING
            watch.asked_at = now
            return StallVerdict.ASK
        if watch.stacks or now - watch.asked_at > self._patience.stacks_s:
            return StallVerdict.END
        return StallVerdict.NOTHING
