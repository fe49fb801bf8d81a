"""The small policies, each case a row."""

from __future__ import annotations

import pytest
from fakes.job_settings import TIMINGS, job_settings

from edl_master.core.failure import Failure
from edl_master.core.failure_policy import (
    CrashLoopDetector,
    DeadLetterTask,
    ExitKind,
    FailJob,
    RetryTask,
    after_task_failure,
    classify_exit,
    restart_delay_s,
    split_exit_code,
)
from edl_master.core.identifiers import TaskType
from edl_master.core.settings import JobType

BOOM = Failure("USER_CODE", "boom", where="model.py:3", detail="Traceback")


@pytest.mark.parametrize(
    ("type_", "failures", "permanent", "allowed", "decision"),
    [
        (TaskType.TRAINING, 1, False, False, RetryTask),
        (TaskType.TRAINING, 2, False, False, RetryTask),
        (TaskType.TRAINING, 3, False, False, FailJob),
        (TaskType.TRAINING, 1, True, False, FailJob),
        (TaskType.TRAINING, 2, False, True, RetryTask),
        (TaskType.TRAINING, 3, False, True, DeadLetterTask),
        (TaskType.TRAINING, 1, True, True, DeadLetterTask),
        (TaskType.EVALUATION, 3, False, True, DeadLetterTask),
        (TaskType.PREDICTION, 3, False, True, DeadLetterTask),
        (TaskType.EVALUATION_SUMMARY, 3, False, True, FailJob),
        (TaskType.EXPORT, 1, True, True, FailJob),
    ],
)
def test_a_failed_task_is_retried_or_dead_lettered(
    type_: TaskType, failures: int, permanent: bool, allowed: bool, decision: type
) -> None:
    rules = job_settings(JobType.TRAIN, task_attempts=3, allow_dead_letters=allowed)
    made = after_task_failure(rules, type_, failures, BOOM, permanent, "records 0 to 3 of a.csv")
    assert isinstance(made, decision)
    assert made.reason


def test_the_user_sees_the_true_cause_its_place_and_the_traceback() -> None:
    rules = job_settings(JobType.TRAIN)
    made = after_task_failure(rules, TaskType.TRAINING, 3, BOOM, False, "records 0 to 3 of a.csv")
    assert isinstance(made, FailJob)
    assert (made.failure.code, made.failure.what) == ("USER_CODE", "boom")
    assert made.failure.where == "model.py:3; records 0 to 3 of a.csv"
    assert made.failure.detail == "Traceback"
    assert made.failure.remedy


def test_a_failure_without_a_code_is_a_dead_letter() -> None:
    rules = job_settings(JobType.TRAIN)
    made = after_task_failure(rules, TaskType.TRAINING, 3, Failure("", "?"), False, "x")
    assert isinstance(made, FailJob)
    assert made.failure.code == "TASK_DEAD_LETTERED"


def test_records_that_brokers_have_removed_are_set_aside_where_gaps_are_allowed() -> None:
    lost = Failure("DATA_NOT_FOUND", "records of topic t, partition 0, are not there any more")
    for allowed, decision in ((True, DeadLetterTask), (False, RetryTask)):
        rules = job_settings(JobType.TRAIN, allow_gaps=allowed)
        made = after_task_failure(rules, TaskType.TRAINING, 1, lost, False, "records 0 to 3")
        assert isinstance(made, decision)


@pytest.mark.parametrize(
    ("signal", "preempted", "leaving", "kind"),
    [
        (None, False, True, ExitKind.LEFT),
        (15, False, True, ExitKind.LEFT),
        (9, False, True, ExitKind.LEFT),
        (None, False, False, ExitKind.CRASHED),
        (11, False, False, ExitKind.CRASHED),
        (6, False, False, ExitKind.CRASHED),
        (9, False, False, ExitKind.KILLED),
        (15, False, False, ExitKind.KILLED),
        (9, True, False, ExitKind.PREEMPTED),
        (None, True, True, ExitKind.PREEMPTED),
    ],
)
def test_kinds_of_exits(signal: int | None, preempted: bool, leaving: bool, kind: ExitKind) -> None:
    assert classify_exit(signal, preempted=preempted, leaving=leaving) is kind


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (0, (0, None)),
        (128, (128, None)),
        (129, (None, 1)),
        (143, (None, 15)),
        (192, (None, 64)),
        (193, (193, None)),
    ],
)
def test_shells_tell_signals_as_exit_codes(code: int, ended: tuple[int | None, int | None]) -> None:
    assert split_exit_code(code) == ended


def test_kills_are_a_crash_loop_much_later_than_crashes() -> None:
    streak = CrashLoopDetector(job_settings(JobType.TRAIN, worker_crashes=3))
    for _ in range(10):
        assert streak.count(ExitKind.KILLED, "worker 0", "signal 9", "") is None
    verdict = streak.count(ExitKind.KILLED, "worker 0", "signal 9", "")
    assert verdict is not None
    assert "memory" in verdict.failure.remedy
    streak.progress()
    for _ in range(2):
        assert streak.count(ExitKind.CRASHED, "worker 0", "exit code 1", "tail") is None
    verdict = streak.count(ExitKind.CRASHED, "worker 0", "exit code 1", "tail")
    assert verdict is not None
    assert (verdict.failure.code, verdict.failure.detail) == ("WORKER_CRASH_LOOP", "tail")
    assert streak.count(ExitKind.PREEMPTED, "worker 0", "", "") is None


def test_restarts_wait_longer_and_longer_up_to_a_limit() -> None:
    counts = (0, 1, 2, 3, 4, 5, 6, 7, 1000)
    for kind in (ExitKind.CRASHED, ExitKind.KILLED):
        delays = [
            restart_delay_s(kind, consecutive_failures, TIMINGS) for consecutive_failures in counts
        ]
        assert delays == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_preempted_workers_are_restarted_at_once_unless_it_never_ends() -> None:
    counts = (0, 1, 2, 3, 4, 5, 6, 1000)
    delays = [
        restart_delay_s(ExitKind.PREEMPTED, consecutive_failures, TIMINGS)
        for consecutive_failures in counts
    ]
    assert delays == [0, 0, 0, 0, 1, 2, 4, 30]
    assert restart_delay_s(ExitKind.LEFT, 1000, TIMINGS) == 0
