"""What is told about jobs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from edl.codec import decode_status
from edl.core.job_result import of_status
from edl.core.job_status import (
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    ParameterServerStatus,
    WorkerStatus,
    check_more_epochs,
    final_failure,
    next_steps,
    overall_rate,
)
from edl.core.options import Verb
from edl.core.problem import Problem
from edl.render import job_text
from edl.render.table import table
from edl_proto.v1 import job_pb2

RUNNING = JobStatus(
    job="mnist",
    verb=Verb.TRAIN,
    state=JobState.RUNNING,
    records_done=24_600,
    records_total=60_000,
    epoch=2,
    num_epochs=3,
    steps=384,
    records_per_s=2310.4,
    eta_s=15.3,
    loss=0.2312,
    metrics={"accuracy": 0.93, "loss": 0.3},
    workers=(WorkerStatus(0, "working", pid=7), WorkerStatus(1, "lost"), WorkerStatus(2, "ready")),
    workers_min=1,
    workers_max=3,
    seconds=20.0,
    records_trained=24_600,
)


def change(**values: object) -> JobStatus:
    fields = {name: getattr(RUNNING, name) for name in JobStatus.__dataclass_fields__}
    return JobStatus(**{**fields, **values})


def test_a_stream_has_windows_and_no_end() -> None:
    stream = change(is_stream=True, num_epochs=0, eta_s=-1.0)
    assert "/s, window 2, loss 0.2312" in job_text.progress_line(stream)
    with pytest.raises(Problem, match="a stream, which has no epochs"):
        check_more_epochs(replace(stream, state=JobState.FAILED), 3, 4, has_state=True)


def test_a_line_of_progress() -> None:
    assert job_text.progress_line(RUNNING) == (
        "41% of 60,000 records, 2,310/s, ETA 15 s, epoch 2/3, loss 0.2312, val loss 0.3,"
        " val accuracy 0.93, 2 workers (1 to 3 wanted)"
    )


def test_what_is_not_known_is_left_out() -> None:
    starting = JobStatus("x", Verb.PREDICT, JobState.STARTING, workers_min=2, workers_max=2)
    assert job_text.progress_line(starting) == "starting, 0 of 2 workers"
    assert "ETA" not in job_text.progress_line(change(eta_s=-1.0))
    assert "nan" not in job_text.progress_line(change(loss=math.nan))
    finishing = change(state=JobState.FINISHING)
    assert job_text.progress_line(finishing).startswith("writing the model, 41%")


def test_more_done_than_there_is_stays_at_the_whole() -> None:
    assert change(records_done=70_000).fraction == 1.0
    assert change(records_total=0).fraction == 0.0


def test_failures_on_the_way_are_listed() -> None:
    status = change(
        state=JobState.SUCCEEDED,
        master_restarts=3,
        preemptions=2,
        worker_failures=1,
        records_replayed=64,
        dead_letters=("training/1/3: a.recordio [0, 9)",),
    )
    for lines in (job_text.summary(status), job_text.status_lines(status)):
        text = "\n".join(lines)
        assert (
            "3 master restarts, 2 preemptions, 1 worker failure, 64 records computed again" in text
        )
        assert "NOT done: 1 task" in text
        assert "a.recordio [0, 9)" in text


def test_a_difference_between_examples_and_records_is_shown() -> None:
    line = "  the input function made 4,000 examples of 2,000 records"
    for lines in (job_text.status_lines, job_text.summary):
        assert line in lines(change(examples=4000, examples_of=2000))
        assert "examples" not in "".join(lines(change(examples=2000, examples_of=2000)))


def test_parameter_servers_that_ended_with_their_job_are_no_problem() -> None:
    def text(restarts: int) -> str:
        servers = [ParameterServerStatus(n, "gone", restarts=restarts) for n in (0, 1)]
        return "\n".join(job_text.summary(change(state=JobState.SUCCEEDED, servers=tuple(servers))))

    assert "gone" not in text(0)
    assert "problems" not in text(0)
    assert "problems: 2 parameter server restarts" in text(2)


def test_a_task_without_records_that_failed_is_named_alone() -> None:
    letters = [
        job_pb2.DeadLetter(task="callbacks/2/0"),
        job_pb2.DeadLetter(task="training/0/1", records="a [0, 9)", records_trained=4),
    ]
    status = decode_status(job_pb2.JobStatus(dead_letters=letters))
    assert status.dead_letters == (
        "callbacks/2/0",
        "training/0/1: a [0, 9), 4 of them in the model",
    )


def test_restarts_of_the_master_are_read() -> None:
    assert decode_status(job_pb2.JobStatus(master_restarts=2)).master_restarts == 2


def test_curves_are_read() -> None:
    points = [job_pb2.CurvePoint(step=1, at_s=9.0, value=0.5), job_pb2.CurvePoint(step=4, value=2)]
    message = job_pb2.JobStatus(curves=[job_pb2.Curve(name="loss", points=points)])
    assert decode_status(message).curves == {"loss": ((1, 0.5), (4, 2.0))}


def test_the_pace_leaves_out_start_and_end() -> None:
    assert overall_rate(RUNNING) == pytest.approx(1230.0)
    assert overall_rate(change(mean_records_per_s=2000.0)) == 2000.0
    assert overall_rate(change(seconds=0.0)) == 0.0


def test_epochs_of_a_result_are_whole_ones() -> None:
    progress = job_pb2.Progress(epoch=3, num_epochs=3, epochs_done=2)
    for state in (job_pb2.RUNNING, job_pb2.FAILED, job_pb2.SUCCEEDED):
        status = decode_status(job_pb2.JobStatus(state=state, progress=progress))
        assert of_status(status).epochs == 2


def test_only_predictions_have_predictions_and_only_failures_an_error() -> None:
    assert "predictions" not in of_status(RUNNING).to_dict()
    assert of_status(change(verb=Verb.PREDICT, predictions=5))["predictions"] == 5
    failed = of_status(change(state=JobState.FAILED, failure=Failure("NAN_LOSS", "what", "where")))
    assert failed["error"] == {"code": "NAN_LOSS", "what": "what", "where": "where", "remedy": ""}
    with pytest.raises(KeyError):
        of_status(RUNNING)["error"]


def test_an_error_stays_on_one_screen() -> None:
    failure = Failure(
        "DATA_EMPTY", "what", "where", "do", "\n".join(f"line {n}" for n in range(500))
    )
    lines = job_text.failure_lines(failure)
    assert len(lines) < 30
    assert lines[:3] == ["what", "  where: where", "  what to do: do"]
    assert lines[3] == "  | ... 480 lines before these"
    assert lines[-1] == "  | line 499"


def test_which_events_are_notable() -> None:
    def event(kind: str, severity: str) -> bool:
        return JobEvent(1, "", 0.0, kind, severity, "").is_notable

    assert event("EvaluationEnded", "info")
    assert event("WorkerLost", "warning")
    assert not event("WorkerStarted", "info")
    assert not event("JobFailed", "error")  # the command ends with this error


def test_columns_are_aligned_numbers_to_the_right() -> None:
    rows = [("a", "1"), ("longer", "1,000")]
    assert table(("NAME", "N"), rows) == [
        "NAME        N",
        "a           1",
        "longer  1,000",
    ]


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_is_over_in_final_states_and_without_a_master(state: JobState) -> None:
    over = {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.LOST,
        JobState.NOT_STARTED,
    }
    assert state.is_over == (state in over)
    assert state.words == state.words.lower()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({}, None),
        ({"users": 1_200, "items": 3}, "  rows    users 1,200, items 3 (embedding)"),
        (
            {"a": 1, "b": 20, "c": 300, "d": 4_000},
            "  rows    4,321 of 4 embedding tables: d 4,000, c 300, b 20, …",
        ),
    ],
)
def test_rows_of_embedding_tables_are_reported(rows: dict[str, int], told: str | None) -> None:
    lines = job_text.status_lines(replace(RUNNING, table_rows=rows))
    assert [line for line in lines if line.startswith("  rows")] == ([told] if told else [])


def test_a_job_says_how_it_trains() -> None:
    message = job_pb2.JobStatus(name="m", type=job_pb2.TRAIN, state=job_pb2.RUNNING)
    assert decode_status(message).strategy == ""
    for strategy in ("parameter-server", "allreduce"):
        message.settings["training.strategy"] = strategy
        assert f"  strategy {strategy}" in job_text.status_lines(decode_status(message))
    message.settings["training.strategy"] = "auto"
    lines = job_text.status_lines(decode_status(message))
    assert not any("strategy" in line for line in lines), "until the model has decided"


def test_a_job_without_a_link_at_hand_names_the_command_that_prints_one() -> None:
    served = replace(RUNNING, dashboard_url="http://127.0.0.1:8080/")
    assert "  page    edl dashboard mnist" in job_text.status_lines(served)
    link = "http://127.0.0.1:8080/?token=x"
    assert f"  page    {link}" in job_text.status_lines(served, link)
    assert not any("page" in line for line in job_text.status_lines(RUNNING))


def test_the_last_exits_of_workers_are_shown_once_there_are_any() -> None:
    well, crashed = WorkerStatus(0, "working"), WorkerStatus(1, "gone", last_exit="signal 6")
    told = WorkerStatus(2, "starting", last_exit=f"evicted: {'out of memory ' * 20}")
    lines = job_text.status_lines(replace(RUNNING, workers=(well,)))
    assert not any("LAST EXIT" in line for line in lines)
    header, *rows = job_text.status_lines(replace(RUNNING, workers=(well, crashed, told)))[-4:]
    at = header.index("LAST EXIT")
    assert [row[at:] for row in rows[:2]] == ["-", "signal 6"]
    assert rows[2][at:].startswith("evicted: out of memory")
    assert len(rows[2][at:]) == 60


def test_the_gpus_of_workers_are_shown_where_they_have_some() -> None:
    first = WorkerStatus(0, "working", gpu="GPU-1d4cae12-e02a-1df8-aa19-bbc1fe7d6ee8")
    status = replace(RUNNING, workers=(first, WorkerStatus(1, "gone", last_exit="signal 6")))
    header, *rows = job_text.status_lines(status)[-3:]
    assert header.split()[-3:] == ["GPU", "LAST", "EXIT"]
    assert rows[0].split()[-2:] == ["GPU-1d4cae12…", "-"]
    assert rows[1].split()[-3:] == ["-", "signal", "6"]
    assert "GPU" not in "".join(
        job_text.status_lines(replace(RUNNING, workers=(WorkerStatus(0, "working"),)))
    )


def test_workers_without_a_place_are_shown_with_the_platforms_reason() -> None:
    room, quota = "Unschedulable: 0/2 nodes are available", "QuotaExceeded: exceeded quota: team"
    waiting = [WorkerStatus(number, "starting", pending=room) for number in range(1, 12)]
    workers = (WorkerStatus(0, "working"), *waiting, WorkerStatus(12, "starting", pending=quota))
    lines = job_text.status_lines(replace(RUNNING, workers=workers))
    assert lines[-2:] == [
        f"  workers 1, 2, 3, 4, 5, 6, 7, 8 and 3 more are waiting to start: {room}",
        f"  worker 12 is waiting to start: {quota}",
    ]
    assert not job_text.waits(replace(RUNNING, workers=workers[:1]))
    servers = (ParameterServerStatus(0, "starting", pending=room),)
    before_workers = replace(RUNNING, workers=(), servers=servers)
    waits = f"  parameter server 0 is waiting to start: {room}"
    assert job_text.status_lines(before_workers)[-1] == waits
    over = replace(before_workers, state=JobState.CANCELLED)
    assert waits not in job_text.status_lines(over)


DONE = JobStatus("j", Verb.TRAIN, JobState.SUCCEEDED, epochs_done=3, output="m")


@pytest.mark.parametrize(
    ("status", "num_epochs", "has_state", "code", "remedy"),
    [
        (replace(DONE, verb=Verb.PREDICT), 4, True, "USAGE", "edl resume j"),
        (replace(DONE, state=JobState.RUNNING), 4, True, "JOB_EXISTS", "edl stop j"),
        (DONE, 3, True, "USAGE", "--num-epochs 4"),
        (replace(DONE, epochs_done=2), 4, True, "JOB_OVER", "--init-from m"),
        (DONE, 4, False, "JOB_OVER", "--checkpoint-dir"),
    ],
)
def test_which_jobs_cannot_get_more_epochs(
    status: JobStatus, num_epochs: int, has_state: bool, code: str, remedy: str
) -> None:
    with pytest.raises(Problem) as caught:
        check_more_epochs(status, 3, num_epochs, has_state=has_state)
    assert caught.value.code == code
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.LOST])
def test_a_job_without_success_gets_more_epochs_and_needs_no_checkpoint(state: JobState) -> None:
    check_more_epochs(replace(DONE, state=state, epochs_done=1), 3, 4, has_state=False)
    check_more_epochs(DONE, 3, 4, has_state=True)


@pytest.mark.parametrize(
    ("state", "code", "what"),
    [
        (JobState.CANCELLED, "STOPPED", "job j was stopped"),
        (JobState.FAILED, "INTERNAL", "job j failed without a reason"),
    ],
)
def test_a_job_whose_master_gave_no_reason_has_a_failure_with_the_next_steps(
    state: JobState, code: str, what: str
) -> None:
    found = final_failure(JobStatus("j", Verb.TRAIN, state), "edl resume j starts it.")
    assert (found.code, found.what) == (code, what)
    assert found.remedy == "edl events j shows what happened before. edl resume j starts it."


def test_a_reason_that_the_master_gave_stays() -> None:
    failure = Failure("USER_CODE", "boom", remedy="Mend it")
    status = JobStatus("j", Verb.TRAIN, JobState.FAILED, failure=failure)
    assert final_failure(status, "") == replace(failure, remedy="Mend it.")


@pytest.mark.parametrize("remedy", ["Name one: --model-def nets.A", "Mend it.", ""])
def test_each_remedy_is_a_sentence_of_its_own(remedy: str) -> None:
    status = JobStatus("j", Verb.TRAIN, JobState.FAILED)
    failed = replace(status, failure=Failure("USER_CODE", "boom", remedy=remedy))
    found = final_failure(failed, next_steps(status)).remedy
    first = f"{remedy.rstrip('.')}. " if remedy else ""
    assert found == f"{first}edl resume j starts it again."


def test_a_job_that_never_started_has_no_loss() -> None:
    message = job_pb2.JobStatus(name="m", type=job_pb2.TRAIN, state=job_pb2.FAILED)
    assert job_text.describe_metrics(decode_status(message)) == []
    message.progress.loss = 0.0
    assert job_text.describe_metrics(decode_status(message)) == ["loss 0"]


def test_the_name_of_a_metric_adds_no_line() -> None:
    message = job_pb2.JobStatus(name="m", type=job_pb2.EVALUATE, state=job_pb2.RUNNING)
    message.metrics["a\nerror: stolen\x1b[2J"] = 1.0
    assert job_text.describe_metrics(decode_status(message)) == ["a\\nerror: stolen\\x1b[2J 1"]


def test_the_learning_rate_is_the_one_that_was_set_last() -> None:
    message = job_pb2.JobStatus()
    assert decode_status(message).learning_rate is None
    message.settings["model.learning_rate"] = "0.001"
    assert decode_status(message).learning_rate == 0.001
    message.learning_rate = 0.0
    assert decode_status(message).learning_rate == 0.0
