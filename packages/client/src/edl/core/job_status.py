"""A job's status in the client's types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from edl.core.options import Verb
from edl.core.problem import Problem, usage
from edl.core.quantities import plural


class JobState(StrEnum):
    """The state of a job, in the words of ``edl.v1.JobState``.

    ``LOST`` and ``NOT_STARTED`` are the client's own: the master ended without a last word,
    or never began.
    """

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FINISHING = "FINISHING"
    STOPPING = "STOPPING"

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    LOST = "LOST"
    NOT_STARTED = "NOT_STARTED"

    @property
    def words(self) -> str:
        """The state in words, such as ``not started``."""
        return self.value.lower().replace("_", " ")

    @property
    def is_final(self) -> bool:
        return self in _FINAL

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more, whatever the reason."""
        return self in _FINAL or self in (JobState.LOST, JobState.NOT_STARTED)


_FINAL = frozenset((JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED))


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a job failed; ``code`` is the name of an ``edl.v1.ErrorCode``."""

    code: str
    what: str
    where: str = ""
    remedy: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker as the master sees it; the counts are those since the job began.

    ``pending`` says why its instance has no place yet; it is empty if it has one. ``gpu`` is empty
    if it has none, or a cluster has chosen it.
    """

    id: int
    state: str
    host: str = ""
    pid: int = 0
    task: str = ""
    records: int = 0
    steps: int = 0
    records_per_s: float = 0.0
    restarts: int = 0
    last_exit: str = ""
    heartbeat_age_s: float = 0.0
    pending: str = ""
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class ParameterServerStatus:
    """A parameter server; ``restarts`` is of all of them together.

    ``pending`` says why its instance has no place yet; it is empty if it has one.
    """

    id: int
    state: str
    restarts: int = 0
    pending: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One look at a job. ``loss`` is NaN and ``eta_s`` negative while unknown."""

    job: str
    verb: Verb
    state: JobState
    records_done: int = 0
    records_total: int = 0
    epoch: int = 0
    num_epochs: int = 0
    epochs_done: int = 0
    """Whole passes over the data."""
    is_stream: bool = False
    """Whether epochs are the windows of a stream, and ``records_total`` is what has arrived."""
    steps: int = 0
    version: int = 0
    records_per_s: float = 0.0
    eta_s: float = -1.0
    loss: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)
    workers: tuple[WorkerStatus, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    started_at: str = ""
    finished_at: str = ""
    dashboard_url: str = ""
    output: str = ""
    code: str = ""
    """SHA-256 of the model's files as they were submitted; empty if they were not recorded."""
    workers_min: int = 0
    workers_max: int = 0
    records_trained: int = 0
    records_replayed: int = 0
    examples: int = 0
    """What the input function has made of ``examples_of`` records, those in complete tasks."""
    examples_of: int = 0
    predictions: int = 0
    master_restarts: int = 0
    preemptions: int = 0
    worker_failures: int = 0
    dead_tasks: int = 0
    """Tasks that failed in every attempt, whose records the job goes on without."""
    dead_letters: tuple[str, ...] = ()
    """These tasks with their records; of very many, the first."""
    goodput: float = 0.0
    lost_s: Mapping[str, float] = field(default_factory=dict)
    """Worker seconds that trained nothing, by reason."""
    mean_records_per_s: float = 0.0
    """Records per second from the first ones done to the last; 0: not known."""
    servers: tuple[ParameterServerStatus, ...] = ()
    """Empty if the master itself serves the parameters."""
    table_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of embedding tables that training has made, by table."""
    saved_version: int | None = None
    """Parameter version of the newest snapshot; None if there is none."""
    pending: str = ""
    """Why no master runs yet; empty if one does, or did."""
    warnings: tuple[str, ...] = ()
    """What the trained model lacks, and which initial values did not fit."""
    learning_rate: float | None = None
    """That callbacks, edl set or --set have set; None: as the optimizer says."""
    strategy: str = ""
    """Of training, as ``--strategy`` names it; empty in other jobs."""
    curves: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """Step and value of the loss and the metrics, by name; thinned out to some hundreds."""

    @property
    def fraction(self) -> float:
        """Part of the work that is done, 0 to 1."""
        if self.records_total <= 0:
            return 0.0
        return min(1.0, self.records_done / self.records_total)

    @property
    def rounds(self) -> str:
        """The epoch or window that the job is in, in words; empty if it has only one."""
        word = "window" if self.is_stream else "epoch"
        if not self.epoch or (self.num_epochs <= 1 and not self.is_stream):
            return ""
        return f"{word} {self.epoch}" + (f"/{self.num_epochs}" if self.num_epochs else "")

    @property
    def at_work(self) -> int:
        """Workers that can be given tasks at the moment."""
        return sum(worker.state in ("ready", "working") for worker in self.workers)


def has_failed(status: JobStatus) -> bool:
    """Return whether a job failed, or was lost."""
    return status.state in (JobState.FAILED, JobState.LOST)


def is_older(status: JobStatus, age_s: float, now_s: float) -> bool:
    """Return whether a job ended longer ago than this; if it was lost, whether it began so.

    Args:
        age_s: in seconds.
        now_s: seconds since the epoch.
    """
    last = status.finished_at or status.started_at
    return (
        status.state.is_over
        and bool(last)
        and now_s - datetime.fromisoformat(last).timestamp() > age_s
    )


_OF_MODEL_FILE = (
    *("MODEL_IMPORT", "MODEL_CONTRACT", "SHAPE_MISMATCH", "OPTIMIZER_UNSUPPORTED", "NAN_LOSS"),
    *("USER_CODE", "TASK_DEAD_LETTERED", "WORKER_CRASH_LOOP"),
)
"""Codes of failures that a change of the model file may remove."""

_OF_CODE_ALONE = ("MODEL_IMPORT", "MODEL_CONTRACT", "OPTIMIZER_UNSUPPORTED")
"""Codes of failures that the same code would have again."""

_OF_DATA = ("DATA_DAMAGED", "SHAPE_MISMATCH")
"""Codes of failures that a change of the data may remove; a job goes on with the same data only."""

_OF_CODE_OR_DATA = ("SHAPE_MISMATCH", "NAN_LOSS", "USER_CODE")
"""Codes of failures that the same code would have again with the same data."""


def _is_of_options(failure: Failure, verb: Verb) -> bool:
    """Return whether a job would fail again in the same way as long as its options are the same.

    They include the trained model of a job that does not train, and so its code.
    """
    named = failure.code == "USAGE" and failure.where.startswith("--")
    of_code = () if verb is Verb.TRAIN else (*_OF_CODE_ALONE, *_OF_CODE_OR_DATA)
    return named or failure.code in ("UNKNOWN_PARAMETER", "MODEL_NOT_FOUND", *of_code)


def new_submission(status: JobStatus) -> str:
    """Return the remedy of a job whose options are wrong; empty for other jobs."""
    if status.failure is None or not _is_of_options(status.failure, status.verb):
        return ""
    return f"A job keeps its options: edl delete {status.job}, and submit it again."


def next_steps(status: JobStatus, *, takes_code: bool = True) -> str:
    """Return how a person can continue with a job that is over; empty if it succeeded.

    Args:
        takes_code: the job's code is in no image, and can be replaced.
    """
    steps, code = _resuming_steps(status), status.failure.code if status.failure else ""
    if code in _OF_DATA and status.saved_version and status.verb is Verb.TRAIN:
        steps += " Corrected data needs a new job: --init-from takes that model."
    if not steps or code not in _OF_MODEL_FILE or not status.code or new_submission(status):
        return steps
    with_new_code = (
        f"With a corrected model file: edl resume {status.job} --code new." if takes_code else ""
    )
    if code in _OF_CODE_ALONE and not status.saved_version:
        return with_new_code or f"A job keeps its image: edl delete {status.job}, and submit again."
    if code in _OF_CODE_OR_DATA and status.saved_version is None and with_new_code:
        return f"With corrected data: edl resume {status.job}. {with_new_code}"
    if code in (*_OF_CODE_ALONE, "USER_CODE") and status.saved_version and with_new_code:
        return f"With a corrected model file: {_resuming_steps(status, ' --code new')}"
    return f"{steps} {with_new_code}".rstrip()


def _resuming_steps(status: JobStatus, option: str = "") -> str:
    name, version = status.job, status.saved_version
    if status.state is JobState.SUCCEEDED:
        return ""
    if steps := new_submission(status):
        return steps
    if status.state is JobState.NOT_STARTED:
        return f"edl resume {name}{option} starts it."
    if version is None:
        return f"edl resume {name}{option} starts it again."
    if status.verb is not Verb.TRAIN or not version:
        return f"edl resume {name}{option} continues it."
    return (
        f"edl resume {name}{option} continues it from parameter version {version}; "
        f"edl export {name} writes the model of that version."
    )


def check_more_epochs(status: JobStatus, had: int, num_epochs: int, *, has_state: bool) -> None:
    """Check that a job can be continued with more epochs than before.

    Args:
        had: epochs that it was to have so far.
        num_epochs: epochs that it is to have, with those that are done.
        has_state: there is a state that a job can be continued from after success.

    Raises:
        Problem: USAGE, JOB_EXISTS or JOB_OVER.
    """
    name, flag = status.job, "--num-epochs"
    if status.verb is not Verb.TRAIN:
        raise usage(
            f"{name} is not a training job, so it has no epochs",
            where=flag,
            remedy=f"edl resume {name}",
        )
    if not status.state.is_over:
        raise Problem(
            "JOB_EXISTS",
            f"{name} is {status.state.words}; only a job that is over can get more epochs",
            where=flag,
            remedy=f"edl stop {name}, then edl resume {name} {flag} {num_epochs}",
        )
    if status.is_stream:
        raise usage(
            f"{name} has trained on a stream, which has no epochs",
            where=flag,
            remedy="Start another job on the files that come, with --init-from and its model.",
        )
    if num_epochs <= had:
        raise usage(
            f"{name} has {plural(had, 'epoch')} already",
            where=flag,
            remedy=f"The number includes the epochs that are done: {flag} {had + 1} is one more.",
        )
    if status.state is not JobState.SUCCEEDED:
        return
    remedy = f"Train another job from its model: edl train --init-from {status.output}"
    if status.epochs_done < had:
        what = f"a callback has ended the training of {name} in epoch {status.epochs_done}"
        raise Problem("JOB_OVER", what, where=name, remedy=remedy)
    if not has_state:
        what = f"{name} has succeeded and has kept no checkpoint to continue from"
        raise Problem(
            "JOB_OVER", what, where=name, remedy=f"{remedy}. Jobs with --checkpoint-dir keep some."
        )


def final_failure(status: JobStatus, steps: str) -> Failure:
    """Return the failure of a job that ended without success, even if its master gave no reason.

    Args:
        steps: how a person can continue with the job, for the end of the remedy; may be empty.
    """
    stopped = status.state is JobState.CANCELLED
    failure = status.failure or Failure(
        "STOPPED" if stopped else "INTERNAL",
        f"job {status.job} " + ("was stopped" if stopped else "failed without a reason"),
        where=status.job,
        remedy=f"edl events {status.job} shows what happened before.",
    )
    remedy = failure.remedy.rstrip()
    if remedy and remedy[-1] not in ".!?":
        remedy += "."
    return replace(failure, remedy=f"{remedy} {steps}".strip())


def overall_rate(status: JobStatus) -> float:
    """Return the records per second while they were done, if known; else of the whole job."""
    if status.mean_records_per_s > 0:
        return status.mean_records_per_s
    done = status.records_trained if status.verb is Verb.TRAIN else status.records_done
    return done / status.seconds if status.seconds > 0 else 0.0


def losses(status: JobStatus) -> str:
    """Return in words what most of the workers' time was lost to; empty if hardly any was."""
    total = sum(status.lost_s.values())
    if total <= 0 or status.goodput >= 1:
        return ""
    # What was lost is 1 - goodput of all that was wanted.
    wanted = total / (1 - status.goodput)
    parts = sorted(status.lost_s.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {s / wanted:.0%}" for name, s in parts if s / wanted >= 0.005)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of the job, as its master wrote it down."""

    number: int
    at: str
    at_s: float
    kind: str
    severity: str
    message: str
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_notable(self) -> bool:
        """Worth a line above the progress bar; the end of a job is told below it."""
        if self.kind == "JobFailed":
            return False
        return self.severity in ("warning", "error") or self.kind in _NOTABLE


# Things that go well and that people wait for.
_NOTABLE = frozenset(
    (
        "EvaluationEnded",
        "CheckpointTaken",
        "Scaled",
        "WorkerCountTried",
        "WorkerCountKept",
        "WorkerCountReverted",
    )
)
