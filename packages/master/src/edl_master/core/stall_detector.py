"""Finds a worker that sends heartbeats but makes no progress.

The limit is a multiple of the usual time of this job's steps. The first step of a task has its own
limit, since it builds the pipeline and may compile. Fixed limits apply before step times are known,
to tasks without steps, and to loading the model file.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from statistics import median

STEPS_REMEMBERED = 64
"""Enough for a median that one odd step does not move; a job's steps change slowly."""


@dataclass(frozen=True, slots=True)
class StallTimeouts:
    """How long a worker may make no progress. In seconds, but ``steps`` and ``starts``."""

    steps: float = 20.0
    """Multiple of the median step."""
    least_s: float = 20.0
    """Minimum for any step: a slow disk or a paused machine delays a step of milliseconds too."""
    starts: float = 5.0
    """Multiple of the longest recent first step of a task."""
    start_s: float = 60.0
    """Minimum for the first step of a task."""
    first_s: float = 300.0
    """While the job has not done a first step of any task."""
    whole_task_s: float = 900.0
    """For a task without steps: evaluation, prediction, export."""
    load_s: float = 600.0
    """For loading the model file, which may download pretrained weights."""
    ask_s: float = 300.0
    """For a worker without a task to ask for one. That takes a second, but the worker may still
    compute a step of a task that it has lost, and nothing is known about that step."""
    minimum_s: float = 0.0
    """Minimum of all limits above, for a user who knows of pauses that steps do not show."""
    stacks_s: float = 5.0
    """From asking for the stacks to acting without them."""


class WorkerActivity(Enum):
    """A worker's present activity, which determines how its progress shows."""

    STEPS = auto()
    """A task that reports every step."""
    WHOLE_TASK = auto()
    """A task that reports nothing before its end."""
    LOADING = auto()
    """The model file, before any task; then the initial values go to the master."""
    ASKING = auto()
    """The worker has no task, so it should ask for one."""


class StallVerdict(Enum):
    """The verdict about a worker at the moment."""

    NOTHING = auto()
    ASK = auto()
    """The limit has passed: ask for the worker's stacks."""
    STOP = auto()
    """The stacks have come, or did not come in time: stop the instance, lease its task again."""


@dataclass(slots=True)
class ProgressWatch:
    """The progress of one instance."""

    since: float
    """When the instance last made progress, or got its present task."""
    stepped: bool = False
    """Whether the instance has done a step of its present task."""
    asked_at: float | None = None
    """When the master asked for the stacks: a stall is suspected."""
    stacks: str = ""

    def begin(self, now: float) -> None:
        """Begin to watch an instance that begins a task."""
        self.since, self.stepped, self.asked_at, self.stacks = now, False, None, ""

    def extend_deadlines(self, pause_s: float) -> None:
        """Do not count a pause in which the master received no message."""
        self.since += pause_s
        if self.asked_at is not None:
            self.asked_at += pause_s


class StepTimes:
    """The durations of recent steps of a job, of all workers. In seconds."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=STEPS_REMEMBERED)
        self._starts: deque[float] = deque(maxlen=STEPS_REMEMBERED)

    def add(self, step_s: float, *, first_of_task: bool) -> None:
        """Add a step."""
        (self._starts if first_of_task else self._steps).append(step_s)

    @property
    def median_s(self) -> float | None:
        """The median of the steps after the first of a task; None before there is one."""
        return median(self._steps) if self._steps else None

    @property
    def longest_start_s(self) -> float | None:
        """The longest first step of a task; None before there is one."""
        return max(self._starts, default=None)


class StallDetector:
    """Compares the progress of instances with the usual step times of the job."""

    def __init__(self, timeouts: StallTimeouts) -> None:
        self._timeouts = timeouts
        self._times = StepTimes()

    def record_step(self, watch: ProgressWatch, now: float) -> None:
        """Record a step of an instance; it took the time since the last progress."""
        self._times.add(now - watch.since, first_of_task=not watch.stepped)
        watch.since, watch.stepped = now, True
        watch.asked_at, watch.stacks = None, ""

    @property
    def step_s(self) -> float | None:
        """The median of recent steps; None before the first."""
        return self._times.median_s

    def limit_s(self, watch: ProgressWatch, activity: WorkerActivity) -> float:
        """Return how long this instance may make no progress."""
        return max(self._timeouts.minimum_s, self._usual_limit_s(watch, activity))

    def _usual_limit_s(self, watch: ProgressWatch, activity: WorkerActivity) -> float:
        """Return the limit that follows from the activity and from the job's step times."""
        timeouts = self._timeouts
        match activity:
            case WorkerActivity.LOADING:
                return timeouts.load_s
            case WorkerActivity.ASKING:
                return timeouts.ask_s
            case WorkerActivity.WHOLE_TASK:
                return timeouts.whole_task_s
            case WorkerActivity.STEPS if watch.stepped:
                if self.step_s is None:
                    return timeouts.first_s
                return max(timeouts.least_s, timeouts.steps * self.step_s)
            case WorkerActivity.STEPS:
                longest_s = self._times.longest_start_s
                if longest_s is None:
                    return timeouts.first_s
                return max(timeouts.start_s, timeouts.starts * longest_s)

    def check(self, watch: ProgressWatch, now: float, activity: WorkerActivity) -> StallVerdict:
        """Decide about an instance that sends heartbeats."""
        if watch.asked_at is None:
            if now - watch.since <= self.limit_s(watch, activity):
                return StallVerdict.NOTHING
            watch.asked_at = now
            return StallVerdict.ASK
        if watch.stacks or now - watch.asked_at > self._timeouts.stacks_s:
            return StallVerdict.STOP
        return StallVerdict.NOTHING
