"""How a worker leaves, and how it comes through the loss of its master."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import reference
from conftest import ZOO, Master, Start, StartProcess, two_tasks

from edl_proto.errors import ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_testing.fake_master import WAIT_S, FakeMaster
from edl_worker.runtime.worker_process import finish_limit_s

Header = parameters_pb2.PushHeader


def hold_at(minibatch: int) -> Callable[[FakeMaster, Header], int | None]:
    """Return a hook that answers STALE from this minibatch on, so that the task does not end."""

    def answer(master: FakeMaster, header: Header) -> int | None:
        time.sleep(0.1)  # or the worker would compute it again all the time
        return parameters_pb2.STALE if header.claim.minibatch >= minibatch else None

    return answer


def computing(master: FakeMaster) -> bool:
    """Whether a worker is in a step, as it said itself."""
    return any(
        beat.leases and beat.phase == task_pb2.COMPUTING for beat in master.received.heartbeats
    )


# --- being asked -------------------------------------------------------------------------------


def test_a_worker_reports_the_stacks_of_its_threads_when_asked(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    master = start_master(job, [two_tasks(points)])
    master.on_push = hold_at(3)
    start_process(master.address)
    master.wait_for(lambda: len(master.received.pushes) > 3, "work")
    master.send_stacks = True
    master.wait_for(lambda: any(beat.stacks for beat in master.received.heartbeats), "stacks")
    (told, *_) = (beat.stacks for beat in master.received.heartbeats if beat.stacks)
    assert "session" in told, "threads have their names"
    assert "session.py" in told, "and say where they are"
    master.send_stacks = False


# --- leaving -----------------------------------------------------------------------------------


def test_sigterm_hands_all_leases_back_and_ends_with_0(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    job.worker_grace_s = 3600  # it does not wait for that to pass
    master = start_master(job, [two_tasks(points)])
    master.on_push = hold_at(3)
    process = start_process(master.address)
    # Two leases: the one at work and the one that was fetched ahead. The worker has to say so:
    # the master has leased a task before the worker knows, and what it does not know it cannot
    # return.
    master.wait_for(
        lambda: any(len(beat.leases) == 2 for beat in master.received.heartbeats), "a prefetch"
    )
    master.wait_for(lambda: len(master.received.pushes) > 5, "work")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    (returned,) = master.received.returned
    assert returned.leaving
    assert returned.reason == "terminated"
    assert returned.instance, "another process of this worker may have followed"
    assert sorted(lease.token for lease in returned.leases) == [1, 2]
    assert [task.applied for task in master.all_tasks()] == [3, 0]

    # What it handed back, another one can do.
    master.on_push = None
    assert start_process(master.address, 1).wait(WAIT_S) == 0
    assert sorted(master.received.minibatches) == [(t, i) for t in (0, 1) for i in range(6 + t)]


@pytest.mark.own_start
def test_a_worker_that_still_loads_leaves_at_once(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    job.worker_grace_s = 3600
    master = start_master(job, [two_tasks(points)])
    process = start_process(master.address)
    master.wait_for(lambda: len(master.received.heartbeats) > 0, "a heartbeat")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    assert not master.received.ready
    assert [(r.reason, r.leaving, len(r.leases)) for r in master.received.returned] == [
        ("terminated", True, 0)
    ]


def test_a_worker_that_cannot_reach_its_master_reports_the_request_in_its_exit_code(
    start_process: StartProcess,
) -> None:
    # A master that takes connections and says nothing, as one that is frozen.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = start_process(f"127.0.0.1:{mute.getsockname()[1]}")
        mute.settimeout(WAIT_S)
        connection, _ = mute.accept()
        with connection:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 128 + signal.SIGTERM


def test_a_worker_stuck_in_user_code_leaves_within_its_grace_time(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_process: StartProcess,
    logs: Callable[[int], Path],
) -> None:
    job.model.loss, job.model.dataset_fn = "faulty.endless", "faulty.count_pipelines"
    job.worker_grace_s = 4.0
    master = start_master(job, [two_tasks(points)])
    process = start_process(master.address)
    master.wait_for(lambda: computing(master), "work")
    beats = len(master.received.heartbeats)
    master.wait_for(lambda: len(master.received.heartbeats) > beats + 2, "heartbeats go on")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    assert [lease.token for lease in master.received.returned[0].leases] == [1]
    assert "has not ended in time" in logs(0).read_text()


@pytest.mark.parametrize("grace_s", [2.0, 4.0, 10.0, 600.0])
def test_work_is_given_up_in_time_to_say_goodbye(grace_s: float) -> None:
    limit_s = finish_limit_s(grace_s, margin_s=1.5, leave_timeout_s=2.0)
    assert 0.0 <= limit_s <= grace_s - 1.5 - min(2.0, grace_s / 4)
    assert grace_s < 10.0 or limit_s > grace_s / 2, "most of it is for the work"


def test_a_second_signal_ends_it_at_once(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    job.model.loss, job.model.dataset_fn = "faulty.endless", "faulty.count_pipelines"
    job.worker_grace_s = 3600
    master = start_master(job, [two_tasks(points)])
    process = start_process(master.address)
    master.wait_for(lambda: computing(master), "work")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) in (128 + signal.SIGINT, 128 + signal.SIGTERM)


@pytest.mark.parametrize(("reason", "told"), [("scaled-down", True), ("replaced", False)])
def test_a_heartbeat_may_ask_to_leave(
    reason: str,
    told: bool,
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
) -> None:
    master = start_master(job, [two_tasks(points)])
    master.on_push = hold_at(2)
    worker = start_worker(master, prefetch_lead_s=-1.0)
    master.wait_for(lambda: len(master.received.pushes) > 3, "work")
    with master.changed:
        master.leave_reason = reason
    assert worker.wait() == 0
    said = [(r.reason, r.leaving, len(r.leases)) for r in master.received.returned]
    assert said == ([(reason, True, 1)] if told else [])


def test_the_end_of_the_job_is_no_failure(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [])
    assert start_worker(master).wait() == 0
    assert not master.received.failed
    assert [r.reason for r in master.received.returned] == ["job-over"]


# --- the master --------------------------------------------------------------------------------


def test_a_master_that_comes_back_restored_gets_what_it_lost_again(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    taken: list[dict[str, object]] = []

    def snapshot(m: FakeMaster, header: Header) -> int | None:
        if header.claim.lease.token == 1 and header.claim.minibatch == 2 and not taken:
            taken.append(m.snapshot())
        return hold_at(4)(m, header) if header.claim.lease.token == 1 else None

    master.on_push = snapshot
    worker = start_worker(master)
    # The fifth is tried, so the worker knows the parameters that came of the fourth.
    master.wait_for(
        lambda: any(header.claim.minibatch == 4 for header, _ in master.received.pushes),
        "four minibatches",
    )
    # Another worker may have brought the new master to the same number of updates since.
    taken[0]["version"] = master.version
    lost = {task.token for task in master.all_tasks()} - {0}
    master.restart(taken[0])
    assert worker.wait() == 0
    later = [beat for beat in master.received.heartbeats if beat.incarnation == master.incarnation]
    assert not lost & {lease.token for beat in later for lease in beat.leases}
    assert len(master.received.registered) == 2
    # The third and fourth were lost with the old master and are in the model once, again.
    counted = master.received.minibatches
    assert counted[:6] == [(0, i) for i in (0, 1, 2, 3, 2, 3)]
    assert [task.applied for task in master.all_tasks()] == [6, 7]
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


LOADING = """
import os, time
while os.path.exists(os.environ["EDL_TEST_HELD"]):
    time.sleep(0.05)
from points import dataset_fn, loss, model, optimizer
"""
"""The points, in a file that is not loaded before the test says so."""


def test_a_master_that_comes_while_the_model_file_loads_knows_the_worker(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_process: StartProcess,
    tmp_path: Path,
) -> None:
    job.model.model_zoo, job.model.model_def = str(tmp_path / "zoo"), "loading.model"
    shutil.copytree(ZOO, job.model.model_zoo)
    (tmp_path / "zoo" / "loading.py").write_text(LOADING)
    held = tmp_path / "held"
    held.touch()
    master = start_master(job, [two_tasks(points)])
    nothing = master.snapshot()
    process = start_process(master.address, EDL_TEST_HELD=str(held))
    master.wait_for(lambda: len(master.received.heartbeats) > 0, "a heartbeat")
    master.restart(nothing)
    master.wait_for(
        lambda: any(beat.incarnation == master.incarnation for beat in master.received.heartbeats),
        "a heartbeat to the next master",
    )
    assert len(master.received.registered) == 2
    assert not master.received.ready
    held.unlink()
    assert process.wait(WAIT_S) == 0
    assert len(master.received.registered) == 2
    assert [task.applied for task in master.all_tasks()] == [6, 7]


def test_a_master_that_lost_everything_gets_the_initial_values_again(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    nothing = master.snapshot()
    master.on_push = hold_at(4)
    worker = start_worker(master)
    master.wait_for(lambda: len(master.received.pushes) > 5, "work")
    master.on_push = None
    master.restart(nothing)
    assert worker.wait() == 0
    assert [task.applied for task in master.all_tasks()] == [6, 7]
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


def test_a_worker_whose_master_is_gone_for_good_ends_with_a_clear_message(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_process: StartProcess,
    logs: Callable[[int], Path],
) -> None:
    master = start_master(job, [two_tasks(points)])
    master.on_push = hold_at(2)
    process = start_process(master.address, EDL_MASTER_WAIT_S="1.5")
    master.wait_for(lambda: len(master.received.pushes) > 3, "work")
    master.stop()
    assert process.wait(WAIT_S) == 1
    told = logs(0).read_text()
    assert "the job's master could not be reached for" in told
    assert master.address in told
    assert "EDL_MASTER_WAIT_S" in told
    assert f"[job={job.name} role=worker worker=0] edl_worker." in told


def test_a_worker_stuck_in_user_code_does_not_outlive_its_master(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    job.model.loss, job.model.dataset_fn = "faulty.endless", "faulty.count_pipelines"
    job.worker_grace_s = 2.0
    master = start_master(job, [two_tasks(points)])
    process = start_process(master.address, EDL_MASTER_WAIT_S="1")
    master.wait_for(lambda: computing(master), "work")
    master.stop()
    assert process.wait(WAIT_S) == 1


@pytest.mark.own_start
def test_a_worker_that_finds_no_master_says_so(
    start_process: StartProcess, logs: Callable[[int], Path]
) -> None:
    process = start_process("127.0.0.1:9", EDL_MASTER_WAIT_S="0.5")
    assert process.wait(WAIT_S) == 1
    assert "127.0.0.1:9" in logs(0).read_text()


def test_an_error_of_the_worker_itself_is_reported_and_ends_it(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    job.model.dataset_fn = "faulty.raise_no_exception"
    master = start_master(job, [two_tasks(points)])
    assert start_process(master.address).wait(WAIT_S) == 70
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.INTERNAL
    assert not failed.permanent
    assert "NoException" in failed.error.what


# --- the files of its user ---------------------------------------------------------------------


def test_warnings_name_the_files_that_were_submitted(
    job: job_pb2.JobSpec, points: Path, tmp_path: Path, start_master: Master, start_worker: Start
) -> None:
    copies = tmp_path / "copies"
    copy = Path(f"{copies}{ZOO}")
    copy.mkdir(parents=True)
    source = (ZOO / "points.py").read_text()
    source = source.replace("Dense(3)", 'Dense(3, "sigmoid")').replace("def loss", "def unused")
    source += '\nloss = "sparse_categorical_crossentropy"\n'
    (copy / "points.py").write_text(source)
    job.model.code.copies, job.model.code.folder = str(copies), str(ZOO)
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    (warning, *_) = master.received.ready[0].warnings
    assert warning.startswith(f"{ZOO}/points.py:{source.count(chr(10))}, loss: ")
