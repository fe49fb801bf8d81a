"""Workers that die, freeze, join and leave while they train in step: each record counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import counting_engine
import pytest
from conftest import Master, export, forking_program, lease, training

from edl_proto.v1 import job_pb2, task_pb2
from edl_testing import fork_server
from edl_testing.fake_ledger import FakeTask
from edl_testing.fake_master import WAIT_S, FakeMaster

ENGINE = "counting_engine"
IMPORTS = (
    *("linear_engine", "edl_worker.app", "edl_worker.tasks.task_runner"),
    *("edl_worker.collectives.peers", "edl_worker.collectives.ring"),
)
SIZE = counting_engine.SIZE

StartProcess = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def job(job: job_pb2.JobSpec, tmp_path: Path) -> job_pb2.JobSpec:
    data = tmp_path / "numbers.recordio"
    counting_engine.write_numbers(data)
    job.data[:] = [str(data)]
    job.training.update = job_pb2.REPLICATED
    job.minibatch_size = 4
    return job


@pytest.fixture
def master(job: job_pb2.JobSpec, start_master: Master, tmp_path: Path) -> FakeMaster:
    data = Path(job.data[0])
    tasks = [training(data, at, at + 20, number=at // 20) for at in range(0, SIZE, 20)]
    return start_master(job, [tasks, [export(str(tmp_path / "exported"))]])


@pytest.fixture
def transport() -> str:
    """How the workers meet; a test may have another parameter."""
    return "memory"


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """An interpreter that runs workers with the counting engine."""
    with forking_program(ENGINE, *IMPORTS) as python:
        yield python


@pytest.fixture
def start(
    engine: str, master: FakeMaster, transport: str, tmp_path: Path
) -> Iterator[StartProcess]:
    """Starts workers; the master learns when one has died."""
    meeting = {"memory": ("EDL_REPLICA_DIR", str(tmp_path / "members"))}
    name, value = meeting.get(transport, ("EDL_RING_HOST", "127.0.0.1"))
    processes: list[subprocess.Popen[bytes]] = []

    def observe(worker: int, process: subprocess.Popen[bytes]) -> None:
        if process.wait() == -signal.SIGKILL:
            with master.changed:
                master.replicas.lose(worker)

    def start(worker: int, *die: object) -> subprocess.Popen[bytes]:
        command = [engine, "-m", ENGINE, master.address, str(worker), *map(str, die)]
        process = subprocess.Popen(command, env={**os.environ, name: value})
        processes.append(process)
        threading.Thread(target=observe, args=(worker, process), daemon=True).start()
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def check(master: FakeMaster) -> None:
    """Make sure that each record has trained the model once, and each step the optimizer."""
    assert not master.received.failed
    all_minibatches = [(task, index) for task in range(SIZE // 20) for index in range(5)]
    assert sorted(master.received.counted) == all_minibatches
    values = master.by_name()
    assert values["count"].tolist() == [1.0] * SIZE
    assert values["updates"].tolist() == [float(master.replicas.counted)]


def steps_of(master: FakeMaster, workers: int) -> list[object]:
    """Return the steps to which so many workers have added something."""
    return [step for step in master.replicas.steps if len(step.claims) == workers]


@pytest.mark.parametrize(
    ("transport", "workers"),
    [("memory", 1), ("memory", 2), ("memory", 3), ("ring", 2), ("ring", 3)],
)
def test_each_record_trains_the_model_once(
    workers: int, transport: str, master: FakeMaster, start: StartProcess
) -> None:
    master.workers_wanted = workers
    processes = [start(number) for number in range(workers)]
    assert [process.wait(WAIT_S) for process in processes] == [0] * workers
    check(master)
    assert steps_of(master, workers)


@pytest.mark.parametrize("transport", ["memory", "ring"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("signal_", [5, 6])
def test_a_worker_dies_in_a_step(
    signal_: int, when: str, transport: str, master: FakeMaster, start: StartProcess
) -> None:
    master.workers_wanted = 3
    processes = [start(0), start(1), start(2, 1, signal_, when)]
    assert [process.wait(WAIT_S) for process in processes] == [0, 0, -signal.SIGKILL]
    check(master)


def begin(master: FakeMaster, start: StartProcess, *die: object) -> list[subprocess.Popen[bytes]]:
    """Have two workers train four tasks, and then wait for more; the first one has rank 0."""
    master.workers_wanted, master.leases_left = 2, 4
    processes = [start(0, *die)]
    master.wait_for(lambda: 0 in master.replicas.joining, "the first worker")
    processes.append(start(1))
    master.wait_for(lambda: len(master.received.counted) == 20, "four tasks")
    return processes


def go_on(master: FakeMaster) -> None:
    """Lease the other tasks."""
    master.leases_left = None


def leave_to(worker: int, master: FakeMaster, other: subprocess.Popen[bytes]) -> None:
    """Have another worker leave once this one has the values too."""
    master.wait_for(lambda: worker in master.replicas.generations[-1].members, "a new member")
    other.send_signal(signal.SIGTERM)
    assert other.wait(WAIT_S) == 0
    assert list(master.replicas.generations[-1].members) == [worker]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("signal_", [1, 2])
def test_a_worker_dies_while_it_gives_its_values_to_another(
    signal_: int, when: str, master: FakeMaster, start: StartProcess
) -> None:
    processes = begin(master, start, 2, signal_, when)
    processes.append(start(2))
    assert processes[0].wait(WAIT_S) == -signal.SIGKILL
    leave_to(2, master, processes[1])
    go_on(master)
    assert processes[2].wait(WAIT_S) == 0
    check(master)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_dies_while_it_receives_its_values(
    when: str, master: FakeMaster, start: StartProcess
) -> None:
    processes = begin(master, start)
    assert start(2, 1, 1, when).wait(WAIT_S) == -signal.SIGKILL
    go_on(master)
    assert [process.wait(WAIT_S) for process in processes] == [0, 0]
    check(master)


def test_a_worker_that_was_frozen_gets_the_values_of_the_others(
    master: FakeMaster, start: StartProcess
) -> None:
    processes = begin(master, start)
    os.kill(fork_server.find_fork(processes[0].pid), signal.SIGSTOP)
    with master.changed:
        master.replicas.lose(0)
        master.leases_left = 4
    master.wait_for(lambda: len(master.received.counted) == 40, "steps without it")
    os.kill(fork_server.find_fork(processes[0].pid), signal.SIGCONT)
    leave_to(0, master, processes[1])
    go_on(master)
    assert processes[0].wait(WAIT_S) == 0
    check(master)


def test_a_worker_leaves_and_the_last_one_saves_its_values(
    master: FakeMaster, start: StartProcess
) -> None:
    processes = begin(master, start)
    processes[0].send_signal(signal.SIGTERM)
    assert processes[0].wait(WAIT_S) == 0
    master.leases_left = 2
    master.wait_for(lambda: len(master.received.counted) == 30, "steps without it")
    processes[1].send_signal(signal.SIGTERM)
    assert processes[1].wait(WAIT_S) == 0
    assert master.replicas.stored == master.replicas.counted
    master.workers_wanted = 1
    go_on(master)
    assert start(2).wait(WAIT_S) == 0
    check(master)


@pytest.mark.parametrize("workers", [1, 2])
def test_values_that_a_task_has_put_aside_come_back(
    workers: int, job: job_pb2.JobSpec, master: FakeMaster, start: StartProcess
) -> None:
    tasks = [task.lease for task in master.stages[0]]
    evaluated = lease(task_pb2.EVALUATION, Path(job.data[0]), 0, 20)
    evaluated.frozen = "stage-0"  # the initial values
    stages = [tasks[:6], [evaluated], tasks[6:], [task.lease for task in master.stages[1]]]
    master.stages = [[FakeTask(one) for one in stage] for stage in stages]
    master.workers_wanted = workers
    processes = [start(number) for number in range(workers)]
    assert [process.wait(WAIT_S) for process in processes] == [0] * workers
    check(master)
    assert "stage-0" in [pull.frozen for pull in master.received.pulls]


@pytest.mark.parametrize("inherits", [False, True])
def test_workers_go_back_to_what_a_new_master_has_or_go_on(
    inherits: bool, master: FakeMaster, start: StartProcess
) -> None:
    processes = begin(master, start)
    with master.changed:
        master.replicas.end(save=True)
    master.wait_for(lambda: master.replicas.stored == master.replicas.counted, "values")
    snapshot, counted = master.snapshot(), list(master.received.counted)
    master.leases_left = 2
    master.wait_for(lambda: len(master.received.counted) == 30, "steps that get lost")
    trained = master.replicas.counted
    master.received.counted[:] = counted
    master.restart(snapshot, inherits=inherits)
    go_on(master)
    assert [process.wait(WAIT_S) for process in processes] == [0, 0]
    check(master)
    begun = master.replicas.generations[0]
    assert begun.version >= trained if inherits else begun.version == snapshot["version"]
    assert bool(begun.sources) is inherits
