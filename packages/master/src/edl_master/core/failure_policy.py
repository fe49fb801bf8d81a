"""Policies for failures: small decisions, each with a name and a reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ldexp

from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskType
from edl_master.core.settings import JobSettings, Timings

# --- a task has failed ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetryTask:
    """Lease the task again, to another worker if there is one."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterTask:
    """Continue without the task, and report it."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailJob:
    """End the job with this failure."""

    failure: Failure
    reason: str


EXPORT_ATTEMPTS = 4
"""Attempts at an export in which workers crash. After two crashes a worker leaves out the form of
the model in which they happened, after the third one the other form, too: parameters are written.
"""


def settings_of(settings: JobSettings, type_: TaskType, crashes: int) -> JobSettings:
    """Return the rules for a task in which ``crashes`` workers have crashed."""
    if type_ is TaskType.EXPORT and crashes:
        return replace(settings, task_attempts=max(settings.task_attempts, EXPORT_ATTEMPTS))
    return settings


RECORDS_LOST = "DATA_NOT_FOUND"
"""The code with which a worker reports that brokers have removed the records of a task."""

_FOR_THE_WHOLE_JOB = (TaskType.EVALUATION_SUMMARY, TaskType.CALLBACKS, TaskType.EXPORT)


def after_task_failure(
    settings: JobSettings,
    type_: TaskType,
    failures: int,
    failure: Failure,
    permanent: bool,
    place: str,
) -> RetryTask | DeadLetterTask | FailJob:
    """Decide whether a failed task is retried, dead-lettered, or fails the job.

    Args:
        settings: rules of the job.
        type_: of the task.
        failures: of this task so far, this one included.
        failure: as its holder reported it.
        permanent: trying again elsewhere cannot help.
        place: the task in words: records and file.
    """
    if settings.allow_gaps and failure.code == RECORDS_LOST:
        return DeadLetterTask("its records are lost, and gaps are allowed")
    if not permanent and failures < settings.task_attempts:
        return RetryTask(f"attempt {failures} of {settings.task_attempts} failed")
    times = "once" if failures == 1 else f"{failures} times"
    reason = "trying again cannot help" if permanent else f"failed {times}"
    if settings.allow_dead_letters and type_ not in _FOR_THE_WHOLE_JOB:
        return DeadLetterTask(f"{reason}, and dead letters are allowed")
    where = f"{failure.where}; {place}" if failure.where else place
    remedy = failure.remedy
    if not remedy:
        remedy = "Correct the model file or the data."
        if type_ not in _FOR_THE_WHOLE_JOB:
            remedy += " A job that allows dead letters leaves such records out."
    code = failure.code or "TASK_DEAD_LETTERED"
    return FailJob(replace(failure, code=code, where=where, remedy=remedy), reason)


# --- an instance ended --------------------------------------------------------------------------


class ExitKind(StrEnum):
    """The kinds of exits that policies distinguish."""

    LEFT = "left"
    """As asked, or as it said before."""
    PREEMPTED = "preempted"
    """Taken away from outside; not a failure."""
    KILLED = "killed"
    """Ended by a signal that is no preemption, such as that of a machine without memory."""
    CRASHED = "crashed"
    """On its own account."""


_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}
_KILLS = frozenset({1, 2, 9, 15})

PREEMPTING = frozenset({9, 15})
"""Signals by which an instance is taken away; a preemption, unless the master sent them."""

_SIGNALLED = 128
_HIGHEST_SIGNAL = 64


def split_exit_code(code: int) -> tuple[int | None, int | None]:
    """Return the exit code, or the signal: shells and engines report signal N as code 128 + N.

    An instance may end with such a code itself, to say that a signal ended it.
    """
    if _SIGNALLED < code <= _SIGNALLED + _HIGHEST_SIGNAL:
        return None, code - _SIGNALLED
    return code, None


def classify_exit(signal: int | None, *, preempted: bool, leaving: bool) -> ExitKind:
    """Name the kind of an exit.

    Args:
        signal: see ``split_exit_code``; None when the instance ended by itself.
        preempted: as the platform reported, or the instance itself before it ended.
        leaving: it was asked to leave, or had announced its departure.
    """
    if preempted:
        return ExitKind.PREEMPTED
    if leaving:
        return ExitKind.LEFT
    return ExitKind.KILLED if signal in _KILLS else ExitKind.CRASHED


def describe_exit(exit_code: int | None, signal: int | None, cause: str = "") -> str:
    """Say in words how an instance ended; the platform's cause comes first if it knows one."""
    if signal is not None:
        name = _SIGNALS.get(signal)
        how = f"signal {signal} ({name})" if name else f"signal {signal}"
    else:
        how = f"exit code {exit_code}" if exit_code is not None else "unknown end"
    return f"{cause}; {how}" if cause else how


KILLS_PER_CRASH_LOOP = 10
"""Kills count as external until this many in a row show a cause, such as too little memory."""

DEATHS_PER_FAILURE = 10
"""More deaths of any kind under one task, without any progress in it, are the task's failure."""


class CrashLoopDetector:
    """Counts instances that ended before they got any work done, over the whole job."""

    def __init__(self, settings: JobSettings) -> None:
        self._most_crashes = settings.worker_crashes
        self.crashes = 0
        self.kills = 0

    def progress(self) -> None:
        """End the streak: work was done, or the obstacle is gone."""
        self.crashes = 0
        self.kills = 0

    def count(self, kind: ExitKind, who: str, how: str, log_tail: str) -> FailJob | None:
        """Count one end without progress, and decide whether this is a crash loop."""
        match kind:
            case ExitKind.CRASHED:
                self.crashes += 1
            case ExitKind.KILLED:
                self.kills += 1
            case ExitKind.LEFT | ExitKind.PREEMPTED:
                return None
        if self.crashes >= self._most_crashes:
            times, remedy = self.crashes, "Read the end of its log below."
        elif self.kills > KILLS_PER_CRASH_LOOP:
            times, remedy = self.kills, "Something kills the workers, often a lack of memory."
        else:
            return None
        what = f"Workers ended {times} times in a row before any work was done; the last: {how}."
        failure = Failure("WORKER_CRASH_LOOP", what, where=who, remedy=remedy, detail=log_tail)
        return FailJob(failure, f"{times} ends in a row without progress")


def cannot_start(who: str, how: str) -> Failure:
    """Return the failure of a job whose instances cannot be started at all."""
    return Failure(
        "SYSTEM",
        f"{who} {how}",
        where="the platform",
        remedy="Correct what the platform reports, and submit the job again.",
    )


PREEMPTIONS_AT_ONCE = 3
"""The number of preemptions in a row, without any work, after which restarts have no delay."""


def restart_delay_s(kind: ExitKind, consecutive_failures: int, timings: Timings) -> float:
    """Return the seconds to wait before a worker's next instance: none at first, then doubling.

    Args:
        kind: why the last instance ended.
        consecutive_failures: earlier instances of this worker in a row that ended without progress.
        timings: where the doubling starts and ends.
    """
    match kind:
        case ExitKind.LEFT:
            times = 0
        case ExitKind.PREEMPTED:
            times = consecutive_failures - PREEMPTIONS_AT_ONCE
        case ExitKind.KILLED | ExitKind.CRASHED:
            times = consecutive_failures
    if times <= 0:
        return 0.0
    doubled_s = ldexp(timings.restart_backoff_s, min(times - 1, 32))
    return min(timings.restart_backoff_max_s, doubled_s)
