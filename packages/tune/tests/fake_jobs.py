"""Jobs of trials that train nothing, and kills at any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl_tune.core.search_space import Value
from edl_tune.core.trials import SeenJob, Trial, TrialJobPhase, TrialResult
from edl_tune.ports import PAUSE

EPOCHS = 3


class Killed(BaseException):
    """The command was killed."""


class Calls:
    """A count of calls; the one with the number ``fatal`` kills the command.

    Args:
        fatal: None: never.
        is_done: whether the fatal call has its effect before the command is gone.
    """

    def __init__(self, fatal: int | None = None, *, is_done: bool = False) -> None:
        self.made = 0
        self._fatal = fatal
        self._is_done = is_done

    def wrap(self, target: Any) -> Any:
        """Return the target; each of its methods is a call."""
        return _Counted(target, self)

    def run(self, call: Any) -> Any:
        self.made += 1
        if self.made != self._fatal:
            return call()
        if self._is_done:
            call()
        raise Killed


class _Counted:
    def __init__(self, target: Any, calls: Calls) -> None:
        self._target = target
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        return lambda *args, **kwargs: self._calls.run(lambda: method(*args, **kwargs))


class FakeJobs:
    """``TrialJobs`` whose objective is the value ``x``, and grows by epochs.

    Attributes:
        starts, resumptions: of each job, by number.
        phases: what the next look sees, by number.
        fail: numbers of jobs that fail when they are half done, and why.
    """

    def __init__(self, fail: Mapping[int, str] | None = None) -> None:
        self.starts: dict[int, int] = {}
        self.resumptions: dict[int, int] = {}
        self.phases: dict[int, TrialJobPhase] = {}
        self.stopped: dict[int, str] = {}
        self.fail = dict(fail or {})
        self._values: dict[int, Mapping[str, Value]] = {}
        self._epochs: dict[int, int] = {}

    def name(self, number: int) -> str:
        return f"study-{number:04}"

    def look(self, number: int) -> SeenJob:
        """Return what is seen; a job that runs has one epoch more at each look."""
        phase = self.phases.get(number, TrialJobPhase.MISSING)
        if phase is TrialJobPhase.MISSING:
            return SeenJob(phase)
        if phase is TrialJobPhase.ALIVE:
            self._epochs[number] += 1
            if self._epochs[number] >= EPOCHS:
                phase = self.phases[number] = TrialJobPhase.SUCCEEDED
            elif number in self.fail:
                phase = self.phases[number] = TrialJobPhase.FAILED
        epochs = self._epochs[number]
        x = float(str(self._values[number]["x"]))
        seen = {epoch: {"accuracy": x * epoch / EPOCHS} for epoch in range(1, epochs + 1)}
        result = TrialResult(
            metrics=seen.get(epochs, {}), epochs=epochs, records=100 * epochs, steps=10 * epochs
        )
        reason = self.fail.get(number, "")
        failure = None if phase is not TrialJobPhase.FAILED else reason
        is_paused = self.stopped.get(number) == PAUSE
        return SeenJob(phase, seen, result, failure, reason == "NaN", is_paused)

    def start(self, number: int, values: Mapping[str, Value]) -> None:
        if self.phases.get(number, TrialJobPhase.MISSING) is not TrialJobPhase.MISSING:
            return  # the very same job runs already
        self.starts[number] = self.starts.get(number, 0) + 1
        self.phases[number] = TrialJobPhase.ALIVE
        self._values[number] = dict(values)
        self._epochs[number] = 0

    def resume(self, number: int) -> None:
        self.resumptions[number] = self.resumptions.get(number, 0) + 1
        self.phases[number] = TrialJobPhase.ALIVE

    def stop(self, number: int, reason: str) -> None:
        if self.phases.get(number) is TrialJobPhase.ALIVE:
            self.phases[number] = TrialJobPhase.STOPPED
            self.stopped[number] = reason


class SilentStudy:
    """A ``StudyDisplay`` that shows nothing."""

    def show_start(self, trial: Trial, *, resumes: bool) -> None:
        """Show nothing."""

    def show_end(self, trial: Trial, best: Trial | None) -> None:
        """Show nothing."""
