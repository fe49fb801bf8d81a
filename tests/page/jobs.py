"""Made-up jobs at any moment of their lives, as the master would report them.

Everything is a function of the seconds since the start, so that a test or a person can look
at the same moment again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from edl_proto.errors import ErrorCode
from edl_proto.v1 import error_pb2, job_pb2
from edl_proto.v1.job_pb2 import Event, JobStatus

Moment = tuple[JobStatus, list[Event]]

RECORDS = 60_000
EPOCHS = 5
TOTAL = RECORDS * EPOCHS
MINIBATCH = 64
TASK = 4_096
RATE = 2_380.0  # records per second of all workers together
WARM_UP_S = 4.2
EPOCH_S = RECORDS / RATE
DURATION_S = WARM_UP_S + TOTAL / RATE + 3.0  # the last seconds: evaluation, export

TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/model_zoo/mnist/functional.py", line 41, in dataset_fn
    image = tf.io.decode_raw(record["image"], tf.uint8)
  File "/usr/lib/python3.11/site-packages/tensorflow/python/ops/parsing_ops.py", line 864, in decode
    raise errors.InvalidArgumentError(None, None, message)
tensorflow.python.framework.errors_impl.InvalidArgumentError: Input to DecodeRaw has length 783 \
that is not a multiple of 784, the size of an image
"""


def training(at_s: float, start: datetime | None = None) -> Moment:
    """A training job with three workers, a preemption and a crash, ``at_s`` after its start."""
    start = start or datetime.now(UTC) - timedelta(seconds=min(at_s, DURATION_S))
    at_s = min(at_s, DURATION_S)
    worked_s = max(0.0, at_s - WARM_UP_S)
    done = min(TOTAL, int(worked_s * RATE) // MINIBATCH * MINIBATCH)
    steps = done // MINIBATCH
    over = at_s >= DURATION_S
    epoch = min(EPOCHS, done // RECORDS + 1)
    state = (
        job_pb2.STARTING
        if worked_s == 0
        else job_pb2.SUCCEEDED
        if over
        else job_pb2.FINISHING
        if done == TOTAL
        else job_pb2.RUNNING
    )
    status = JobStatus(
        name="mnist-digits",
        type=job_pb2.TRAIN,
        state=state,
        seconds=at_s,
        started_at=_rfc3339(start),
        finished_at=_rfc3339(start + timedelta(seconds=at_s)) if over else "",
        dashboard_url="http://127.0.0.1:8080/",
        output="/home/ada/models/mnist-digits",
        incarnation="1f0c-01",
        workers_wanted=job_pb2.WorkersSpec(min=2, max=4),
        records_trained=done,
        records_replayed=_count_before(worked_s, (31.0, 64), (58.0, 64)),
        preemptions=_count_before(worked_s, (31.0, 1)),
        worker_failures=_count_before(worked_s, (58.0, 1)),
        gradients_rejected=_count_before(worked_s, (31.0, 1)),
        staleness_mean=1.86 if steps else 0.0,
    )
    status.progress.CopyFrom(
        job_pb2.Progress(
            records_done=done,
            records_total=TOTAL,
            epoch=epoch,
            num_epochs=EPOCHS,
            steps=steps,
            parameter_version=steps,
            records_per_s=0.0 if over or not done else RATE + 60 * math.sin(at_s / 3),
            eta_s=(TOTAL - done) / RATE if done else -1.0,
            loss=_loss(steps) if steps else math.nan,
            goodput=0.0 if not done else 0.94,
        )
    )
    if steps:
        curve = status.curves.add(name="loss")
        for step in _choose_steps(steps):
            curve.points.add(step=step, at_s=WARM_UP_S + step * MINIBATCH / RATE, value=_loss(step))
    evaluations = min(EPOCHS, int((worked_s - 1.5) / EPOCH_S)) if worked_s > 1.5 else 0
    for name, value in (("accuracy", _accuracy), ("sparse_top_2_accuracy", _top_two)):
        if evaluations:
            curve = status.curves.add(name=name)
            for n in range(1, evaluations + 1):
                at = WARM_UP_S + n * EPOCH_S
                curve.points.add(step=n * RECORDS // MINIBATCH, at_s=at, value=value(n))
            status.metrics[name] = value(evaluations)
    _add_workers(status, at_s, worked_s, over)
    per_epoch = math.ceil(RECORDS / TASK)
    tasks_done = min(per_epoch * EPOCHS, done // TASK) if done < TOTAL else per_epoch * EPOCHS
    leased = 0 if done == TOTAL or not done else 3
    status.tasks["training"].CopyFrom(
        job_pb2.TaskCounts(
            pending=per_epoch * EPOCHS - tasks_done - leased,
            leased=leased,
            done=tasks_done,
            retried=_count_before(worked_s, (31.0, 1), (58.0, 1)),
        )
    )
    status.tasks["evaluation"].CopyFrom(job_pb2.TaskCounts(done=evaluations * 3))
    status.tasks["evaluation_summary"].CopyFrom(job_pb2.TaskCounts(done=evaluations))
    status.tasks["export"].CopyFrom(job_pb2.TaskCounts(done=int(over), pending=int(not over)))
    return status, _training_events(start, at_s, worked_s, evaluations, over)


def failed_training(start: datetime | None = None) -> Moment:
    """Return a training job that a bad record has ended, with the dead letter and its traceback."""
    status, events = training(47.0, start)
    status.state = job_pb2.FAILED
    status.progress.records_per_s = 0.0
    status.progress.eta_s = -1.0
    status.finished_at = _rfc3339(
        datetime.fromisoformat(status.started_at) + timedelta(seconds=status.seconds)
    )
    error = error_pb2.Error(
        code=ErrorCode.TASK_DEAD_LETTERED,
        what="Task training/2/9 failed on 3 of 3 attempts: the model file raised "
        "InvalidArgumentError.",
        where="/home/ada/data/mnist/train-00007.rec, records [36864, 40960)",
        remedy="Look at these records with `edl data inspect`, or let the job go on without them "
        "with --allow-dead-letters.",
        detail=TRACEBACK,
    )
    status.error.CopyFrom(error)
    status.dead_letters.add(
        task="training/2/9",
        records="/home/ada/data/mnist/train-00007.rec [36864, 40960)",
        error=error_pb2.Error(
            code=ErrorCode.USER_CODE,
            what="dataset_fn raised InvalidArgumentError: Input to DecodeRaw has length 783.",
            where="/home/ada/model_zoo/mnist/functional.py:41, dataset_fn",
            remedy="Correct the record or the model file.",
            detail=TRACEBACK,
        ),
    )
    status.tasks["training"].dead = 1
    status.tasks["training"].leased = 0
    status.tasks["training"].retried += 2
    status.tasks["export"].pending = 0
    for worker in status.workers:
        worker.state, worker.task, worker.records_per_s = "gone", "", 0.0
    facts = {"task": "training/2/9", "worker": "1", "attempt": "3"}
    for kind, severity, message in (
        ("TaskRetried", "warning", "Task training/2/9 failed on worker 0 and is tried again."),
        ("TaskRetried", "warning", "Task training/2/9 failed on worker 2 and is tried again."),
        ("TaskDeadLettered", "error", "Task training/2/9 failed on its last attempt."),
        ("JobFailed", "error", error.what),
    ):
        events.append(_event(events, status.started_at, 47.0, kind, severity, message, facts))
    return status, events


def evaluation(done: int, start: datetime | None = None) -> Moment:
    """An evaluate job over 10,000 records, ``done`` of them seen."""
    status, events = _simple(job_pb2.EVALUATE, "digits-check", "evaluation", done, 10_000, start)
    if done >= 10_000:
        for name, value in (("accuracy", 0.9731), ("auc", 0.99912), ("loss", 0.0874)):
            status.metrics[name] = value
        status.tasks["evaluation_summary"].CopyFrom(job_pb2.TaskCounts(done=1))
    return status, events


def prediction(done: int, start: datetime | None = None) -> Moment:
    """A predict job over 1,250,000 records, ``done`` of them seen."""
    status, events = _simple(
        job_pb2.PREDICT, "digits-nightly", "prediction", done, 1_250_000, start
    )
    status.output = "/home/ada/predictions/2026-11-03"
    status.predictions = done
    return status, events


def _simple(
    kind: job_pb2.JobType.ValueType,
    name: str,
    task: str,
    done: int,
    total: int,
    start: datetime | None,
) -> Moment:
    seconds = 5.0 + done / 4_000
    start = start or datetime.now(UTC) - timedelta(seconds=seconds)
    over = done >= total
    status = JobStatus(
        name=name,
        type=kind,
        state=job_pb2.SUCCEEDED if over else job_pb2.RUNNING,
        seconds=seconds,
        started_at=_rfc3339(start),
        finished_at=_rfc3339(start + timedelta(seconds=seconds)) if over else "",
        incarnation="1f0c-01",
        workers_wanted=job_pb2.WorkersSpec(min=2, max=2),
        progress=job_pb2.Progress(
            records_done=done,
            records_total=total,
            records_per_s=0.0 if over else 4_012.0,
            eta_s=(total - done) / 4_000,
            loss=math.nan,
            goodput=0.91,
        ),
    )
    for worker in range(2):
        status.workers.add(
            id=worker,
            state="gone" if over else "working",
            host="node-7",
            pid=4410 + worker,
            task="" if over else f"{task}/0/{done // TASK + worker}",
            records=done // 2,
            records_per_s=0.0 if over else 2_006.0,
            heartbeat_age_s=0.4,
        )
    status.tasks[task].CopyFrom(
        job_pb2.TaskCounts(
            pending=max(0, math.ceil(total / TASK) - done // TASK - 2) if not over else 0,
            leased=0 if over else 2,
            done=math.ceil(total / TASK) if over else done // TASK,
        )
    )
    events: list[Event] = []
    for at, happened, message in (
        (
            0.1,
            "JobStarted",
            f"Job {name} has {total:,} records in {math.ceil(total / TASK)} tasks.",
        ),
        (3.4, "WorkerReady", "Worker 0 is ready."),
        (3.6, "WorkerReady", "Worker 1 is ready."),
    ):
        events.append(_event(events, status.started_at, at, happened, "info", message, {}))
    if over:
        message = f"Job {name} succeeded."
        events.append(
            _event(events, status.started_at, seconds, "JobSucceeded", "info", message, {})
        )
    return status, events


def _loss(step: int) -> float:
    noise = random.Random(step).gauss(0, 0.035)
    return (0.055 + 2.25 * math.exp(-step / 330) + 0.28 * math.exp(-step / 1500)) * (1 + noise)


def _accuracy(epoch: int) -> float:
    return (0.9312, 0.9587, 0.9668, 0.9719, 0.9744)[epoch - 1]


def _top_two(epoch: int) -> float:
    return (0.9721, 0.9864, 0.9902, 0.9923, 0.9931)[epoch - 1]


def _choose_steps(steps: int, max_count: int = 240) -> list[int]:
    stride = max(1, steps // max_count)
    return [*range(1, steps, stride), steps]


def _count_before(now: float, *moments: tuple[float, int]) -> int:
    return sum(amount for at, amount in moments if now >= at)


def _add_workers(status: JobStatus, at_s: float, worked_s: float, over: bool) -> None:
    for worker, speed in enumerate((832.0, 806.0, 742.0)):
        state, exited, restarts = "working", "", 0
        if worker == 1 and worked_s >= 31.0:
            exited, restarts = "preempted (SIGTERM), task handed back", 1
            state = "loading" if worked_s < 34.0 else state
        if worker == 2 and worked_s >= 58.0:
            exited, restarts = "killed by signal 9", 1
            state = "loading" if worked_s < 61.0 else state
        if worked_s == 0:
            state = "starting" if at_s < 0.6 else "loading"
        if over:
            state = "gone"
        busy = state == "working"
        records = int(worked_s * speed)
        status.workers.add(
            id=worker,
            state=state,
            host="node-7",
            pid=4410 + worker + 37 * restarts,
            task=f"training/{status.progress.epoch}/{(int(worked_s * 0.6) + worker) % 15}"
            if busy
            else "",
            records=records,
            steps=records // MINIBATCH,
            records_per_s=speed + 20 * math.sin(at_s + worker) if busy else 0.0,
            restarts=restarts,
            last_exit=exited,
            heartbeat_age_s=(at_s * 0.37 + worker * 0.31) % 1.0,
        )


def _training_events(
    start: datetime, at_s: float, worked_s: float, evaluations: int, over: bool
) -> list[Event]:
    happened: list[tuple[float, str, str, str, dict[str, str]]] = [
        (
            0.1,
            "JobStarted",
            "info",
            "Job mnist-digits has 60,000 records in 15 tasks per epoch.",
            {"files": "8", "format": "recordio", "seed": "20261103"},
        ),
        (0.2, "WorkerStarted", "info", "Worker 0 started as process 4410.", {"worker": "0"}),
        (0.2, "WorkerStarted", "info", "Worker 1 started as process 4411.", {"worker": "1"}),
        (0.3, "WorkerStarted", "info", "Worker 2 started as process 4412.", {"worker": "2"}),
        (
            3.9,
            "ModelAgreed",
            "info",
            "The model has 111,514 trainable parameters; SGD.",
            {"layout": "9c41e2a7", "variables": "10"},
        ),
        (4.0, "WorkerReady", "info", "Worker 0 is ready.", {}),
        (4.1, "WorkerReady", "info", "Worker 2 is ready.", {}),
        (4.2, "WorkerReady", "info", "Worker 1 is ready.", {}),
        (
            WARM_UP_S + 31.0,
            "WorkerPreempted",
            "warning",
            "Worker 1 was asked to leave and handed its task back after 9 of 64 minibatches.",
            {"worker": "1", "task": "training/2/3", "applied": "9"},
        ),
        (WARM_UP_S + 31.4, "WorkerStarted", "info", "Worker 1 was replaced.", {"worker": "1"}),
        (WARM_UP_S + 34.0, "WorkerReady", "info", "Worker 1 is ready again.", {"pid": "4448"}),
        (
            WARM_UP_S + 58.0,
            "WorkerExited",
            "warning",
            "Worker 2 ended by signal 9; its task goes on with minibatch 22.",
            {"worker": "2", "task": "training/3/8", "applied": "21"},
        ),
        (WARM_UP_S + 58.4, "WorkerStarted", "info", "Worker 2 was replaced.", {"worker": "2"}),
        (WARM_UP_S + 61.0, "WorkerReady", "info", "Worker 2 is ready again.", {"pid": "4449"}),
    ]
    for n in range(1, evaluations + 1):
        at = WARM_UP_S + n * EPOCH_S + 1.5
        version = n * RECORDS // MINIBATCH
        message = f"Evaluation {n}: accuracy {_accuracy(n):.4f}, at version {version:,}."
        happened.append((at, "EvaluationEnded", "info", message, {"version": str(version)}))
        happened.append((at - 1.5, "EpochEnded", "info", f"Epoch {n} of {EPOCHS} is done.", {}))
    if over:
        output = {"output": "/home/ada/models/mnist-digits"}
        happened.append(
            (DURATION_S, "ModelExported", "info", "The trained model is written.", output)
        )
        happened.append((DURATION_S, "JobSucceeded", "info", "Job mnist-digits succeeded.", {}))
    events: list[Event] = []
    for at, kind, severity, message, facts in sorted(happened, key=lambda h: h[0]):
        if at <= at_s:
            events.append(_event(events, _rfc3339(start), at, kind, severity, message, facts))
    return events


def _event(
    before: list[Event],
    started_at: str,
    at_s: float,
    kind: str,
    severity: str,
    message: str,
    facts: dict[str, str],
) -> Event:
    at = datetime.fromisoformat(started_at) + timedelta(seconds=at_s)
    return Event(
        number=len(before) + 1,
        at=_rfc3339(at),
        at_s=at_s,
        kind=kind,
        severity=severity,
        message=message,
        facts=facts,
    )


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


SCENARIOS: dict[str, Callable[[float], Moment]] = {
    "training": training,
    "failed": lambda _: failed_training(),
    "evaluation": lambda at_s: evaluation(min(10_000, int(max(0.0, at_s - 5) * 1_000))),
    "prediction": lambda at_s: prediction(min(1_250_000, int(max(0.0, at_s - 5) * 40_000))),
}
