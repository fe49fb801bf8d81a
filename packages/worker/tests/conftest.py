"""Jobs, data and workers for the tests of this package."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from zoo_folder import ZooFolder

import recordio
import recordio.example
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing import fork_server
from edl_testing.fake_master import WAIT_S, FakeMaster
from edl_worker.app import build_worker
from edl_worker.config import Settings
from edl_worker.engines.tensorflow.startup import import_tensorflow
from edl_worker.runtime import thread_stacks

# A machine that is busy makes an example slow, not wrong.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")

ZOO = Path(__file__).parent / "zoo"
RECORDS = 100

Master = Callable[..., FakeMaster]
Start = Callable[..., "Worker"]
StartProcess = Callable[..., "subprocess.Popen[str]"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while the tests are imported, nor later in what their imports made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class Worker:
    """A worker in a thread of the test's process, with everything real but the process."""

    def __init__(self, settings: Settings) -> None:
        self.process = build_worker(settings)
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.exit_code = self.process.run()

    def wait(self) -> int:
        self._thread.join(WAIT_S)
        if self.exit_code is None:
            stacks = thread_stacks.format_stacks()
            pytest.fail(f"the worker still runs after {WAIT_S:.0f} s\n{stacks}")
        return self.exit_code


@pytest.fixture
def zoo(tmp_path: Path) -> ZooFolder:
    return ZooFolder(tmp_path)


@pytest.fixture(scope="session")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of examples for ``zoo/points.py``."""
    path = tmp_path_factory.mktemp("data") / "points.recordio"
    random = np.random.default_rng(7)
    with recordio.Writer(str(path)) as writer:
        for _ in range(RECORDS):
            x = random.normal(size=4).astype(np.float32)
            label = int(np.argmax(x[:3]))
            writer.write(recordio.example.encode({"x": x, "label": [label]}))
    return path


@pytest.fixture
def job(points: Path, tmp_path: Path) -> job_pb2.JobSpec:
    """A training job on the points: minibatches of 8."""
    return points_job(points, tmp_path)


def points_job(points: Path, folder: Path) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(
        name="points",
        type=job_pb2.TRAIN,
        model=job_pb2.ModelSpec(model_zoo=str(ZOO), model_def="points"),
        data=[str(points)],
        output=str(folder / "out"),
        minibatch_size=8,
        training=job_pb2.TrainingSpec(
            num_epochs=1, update=job_pb2.ASYNC, local_steps=1, seed=1, keep_checkpoints=3
        ),
        workers=job_pb2.WorkersSpec(min=1, max=1),
        failures=job_pb2.FailureSpec(task_attempts=3, worker_crashes=3),
        serving=job_pb2.ServingSpec(host="127.0.0.1", metrics_auth="token"),
        worker_grace_s=5.0,
        snapshot_interval_s=5.0,
        tensorboard_dir=str(folder / "tensorboard"),
        platform="processes",
    )


@pytest.fixture
def start_master() -> Iterator[Callable[..., FakeMaster]]:
    masters: list[FakeMaster] = []

    def start(*args: object, **options: object) -> FakeMaster:
        masters.append(FakeMaster(*args, **options).start())
        return masters[-1]

    yield start
    for master in masters:
        master.stop()


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Starts workers in threads; those that still run at the end are asked to leave."""
    workers: list[Worker] = []

    def start(master: FakeMaster, worker_id: int = 0, **settings: float) -> Worker:
        chosen = Settings(master.address, worker_id, **settings)
        workers.append(Worker(chosen))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.leave("the test is over")
        worker.wait()


@pytest.fixture
def logs(tmp_path: Path) -> Callable[[int], Path]:
    """Return the log file of a worker process, by worker."""
    return lambda worker_id: tmp_path / f"worker-{worker_id}.log"


@pytest.fixture(scope="session")
def forking_python() -> Iterator[str]:
    """An interpreter that runs workers, and checks of model files, as forks with TensorFlow."""
    import_tensorflow()  # it sets variables; with others than these, a worker would be no fork
    with fork_server.forking_python([fork_server.WORKER], fork_server.WORKER_IMPORTS) as found:
        yield found


@contextlib.contextmanager
def forking_program(module: str, *imports: str) -> Iterator[str]:
    """Yield an interpreter that runs a program of these tests as a fork with these imports."""
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("PYTHONPATH", str(Path(__file__).parent))
        with fork_server.forking_python([module], imports) as python:
            yield python


@pytest.fixture
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter for workers; those of a test with the mark ``own_start`` are no forks."""
    if request.node.get_closest_marker("own_start"):
        return sys.executable
    forking: str = request.getfixturevalue("forking_python")
    return forking


@pytest.fixture
def start_process(
    tmp_path: Path, logs: Callable[[int], Path], python: str
) -> Iterator[StartProcess]:
    """Starts workers as processes; those that still run at the end are killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(master: str, worker_id: int = 0, **environ: str) -> subprocess.Popen[str]:
        command = [python, "-m", "edl_worker", "--master", master]
        with logs(worker_id).open("w") as log:
            processes.append(
                subprocess.Popen(
                    [*command, "--worker-id", str(worker_id)],
                    stderr=log,
                    text=True,
                    env={**os.environ, "EDL_LOG_LEVEL": "DEBUG", **environ},
                )
            )
        return processes[-1]

    yield start
    for number, process in enumerate(processes):
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)
        print(f"--- worker process {number} ended with {process.returncode}")
    for log in sorted(tmp_path.glob("worker-*.log")):
        print(f"--- {log.name}\n{log.read_text()}")


def two_tasks(path: Path) -> list[task_pb2.Lease]:
    """Return all records of the points: 6 minibatches of 8, the last one short, and 7."""
    return [training(path, 0, 44, number=0), training(path, 44, RECORDS, number=1)]


OF_TWO_TASKS = [*((0, i) for i in range(6)), *((1, i) for i in range(7))]
"""Task and number of all their minibatches, in order."""


def training(
    path: Path, start: int, stop: int, *, number: int = 0, epoch: int = 1
) -> task_pb2.Lease:
    """Return a training task on records of a file."""
    return lease(task_pb2.TRAINING, path, start, stop, number=number, round_=epoch)


def lease(
    type_: int, path: Path, start: int, stop: int, *, number: int = 0, round_: int = 1
) -> task_pb2.Lease:
    return task_pb2.Lease(
        task=task_pb2.TaskKey(type=type_, round=round_, number=number),
        records=[task_pb2.RecordRange(uri=str(path), format="recordio", start=start, stop=stop)],
        seed=1000 * round_ + number,
    )


def export(output: str, number: int = 0) -> task_pb2.Lease:
    return task_pb2.Lease(
        task=task_pb2.TaskKey(type=task_pb2.EXPORT, number=number),
        part_path=output,
        export=task_pb2.ExportInfo(records_trained=100, epochs=1, metrics={"accuracy": 0.5}),
    )


@pytest.fixture(scope="session")
def trained(points: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FakeMaster]:
    """The output of a training job, which tests only read, and its master."""
    job = points_job(points, tmp_path_factory.mktemp("trained"))
    master = FakeMaster(job, [[training(points, 0, 100)], [export(job.output)]]).start()
    assert Worker(Settings(master.address, 0)).wait() == 0
    master.stop()
    assert not master.received.failed, master.received.failed
    return Path(job.output), master


@pytest.fixture
def finished_job(trained: tuple[Path, FakeMaster], tmp_path: Path) -> tuple[Path, FakeMaster]:
    """A copy of the output of a training job, and the master of the job."""
    output, master = trained
    return Path(shutil.copytree(output, tmp_path / "out")), master
