"""Whole jobs in one process: a real master, its platform of threads, and clients over gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from fakes.threads import Machine, ThreadPlatform

import recordio
from edl_master.adapters.job_directory import JobDirectory
from edl_master.app.host_environment import HostEnvironment
from edl_master.app.master import MasterApp
from edl_master.config import job_config
from edl_master.config.job_config import Config, Intervals
from edl_master.core.platform import Platform
from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory
from edl_testing.fake_worker import Weights, WorkerBehavior

DEADLINE_S = 120.0

FAST = Intervals(
    tick_s=0.02, status_every_s=0.1, flush_every_s=0.02, acknowledge_s=0.0, workers_leave_s=10.0
)
"""Tests do not wait for people."""


def write_numbers(directory: Path, sizes: Iterable[int], first: int = 0) -> str:
    """Files whose records are consecutive numbers as text; returns a pattern for all of them."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, size in enumerate(sizes):
        with recordio.Writer(str(directory / f"part-{file}.recordio"), chunk_records=7) as writer:
            for number in range(first, first + size):
                writer.write(str(number).encode())
        first += size
    return str(directory / "*.recordio")


def complete_spec(**fields: object) -> job_pb2.JobSpec:
    """A training job with every field that a job must have, as the client submits it."""
    complete: dict[str, object] = {
        "name": "counting",
        "type": job_pb2.TRAIN,
        "model": job_pb2.ModelSpec(model_zoo="/zoo", model_def="counting"),
        "data": ["/data/*.recordio"],
        "minibatch_size": 32,
        "workers": job_pb2.WorkersSpec(min=1, max=1),
        "failures": job_pb2.FailureSpec(task_attempts=3, worker_crashes=3),
        "serving": job_pb2.ServingSpec(host="127.0.0.1", metrics_auth="token"),
        "worker_grace_s": 10,
        "snapshot_interval_s": 5,
        "tensorboard_dir": "/tensorboard",
        "platform": "processes",
        "training": job_pb2.TrainingSpec(
            num_epochs=2,
            update=job_pb2.ASYNC,
            local_steps=1,
            shuffle=True,
            seed=7,
            keep_checkpoints=3,
        ),
    }
    return job_pb2.JobSpec(**{**complete, **fields})


def set_update(spec: job_pb2.JobSpec, update: str) -> None:
    """Set the mode of updates, with the client's default of its number: that of the workers."""
    spec.training.update = job_pb2.UpdateMode.Value(update)
    if update == "SYNC":
        spec.training.grads_to_wait = spec.workers.max
    elif update == "BOUNDED":
        spec.training.max_staleness = spec.workers.max


def training_spec(tmp_path: Path, sizes: tuple[int, ...] = (37, 64, 5)) -> job_pb2.JobSpec:
    """A small training job of the counting model."""
    return complete_spec(
        data=[write_numbers(tmp_path / "data", sizes)],
        output=str(tmp_path / "model"),
        minibatch_size=4,
        records_per_task=10,
        workers=job_pb2.WorkersSpec(min=1, max=2),
        worker_grace_s=20,
        tensorboard_dir=str(tmp_path / "job" / "tensorboard"),
    )


class RunningJob:
    """A master at work in a thread; a context manager that leaves nothing behind."""

    def __init__(
        self,
        spec: job_pb2.JobSpec,
        job_dir: Path,
        behavior: WorkerBehavior,
        intervals: Intervals = FAST,
        machine: Machine | None = None,
        host_environment: HostEnvironment | None = None,
    ) -> None:
        job_dir.mkdir(parents=True, exist_ok=True)
        self.behavior = behavior
        self.directory = JobDirectory(job_dir)
        self.directory.lock.hold()
        self.platforms: list[ThreadPlatform] = []

        def platform_factory(_: Config, address: Callable[[], str]) -> Platform:
            self.platforms.append(ThreadPlatform(behavior.life(address), machine))
            return self.platforms[-1]

        try:
            self.app = MasterApp(
                job_config.read(spec, job_dir, {}, intervals),
                self.directory,
                replace(host_environment or HostEnvironment(), platform_factory=platform_factory),
            )
        except BaseException:
            self.directory.lock.release()
            raise
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run, name="master", daemon=True)
        self._thread.start()
        self.identities = IdentityFolder(job_dir / job_directory.IDENTITY, spec.name)
        self.channel = channels.connect(self.app.address, self.master_for(Role.CLIENT))
        self.job = job_pb2_grpc.JobStub(self.channel)

    def master_for(self, role: Role, number: int | None = None) -> Peer | None:
        """The master as one of its callers knows it; None if the job is not secured."""
        if not self.identities.exists:
            return None
        return Credentials(self.identities.provide(role, number)).to(Role.MASTER)

    def _run(self) -> None:
        self.exit_code = self.app.run()

    @property
    def platform(self) -> ThreadPlatform:
        return self.platforms[-1]

    def wait(self) -> int:
        """The exit code, when the job is over."""
        self._thread.join(DEADLINE_S)
        assert self.exit_code is not None, f"the job does not end: {self.app.report.status()}"
        return self.exit_code

    def status(self) -> job_pb2.JobStatus:
        return self.job.GetStatus(job_pb2.GetStatusRequest(), timeout=200)

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, *exc: object) -> None:
        self.channel.close()
        self.app.close()
        self.directory.lock.release()


def trained_weights(spec: job_pb2.JobSpec) -> Weights:
    weights: Weights = np.load(Path(spec.output) / "weights.npy")
    return weights


def intervals(**changes: float) -> Intervals:
    return replace(FAST, **changes)
