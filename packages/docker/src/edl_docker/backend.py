"""Jobs in containers of this machine's engine, one for each (``--platform docker``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edl.plugins.backends import (
    JobStore,
    LocalInstance,
    LocalJobBackend,
    LocalPlacement,
    encode_spec,
    submission_time,
)
from edl.plugins.errors import Problem, error_of
from edl.plugins.submissions import Submission, scheme
from edl_docker import container_engine, mounts
from edl_docker.mounts import BindMount
from edl_docker.plugin import DOCKER
from edl_proto.v1 import job_pb2
from edl_runtime.image_names import IMAGE_ZOO
from edl_runtime.local import process_identity


class ContainerRuntime:
    """All processes of a job are in one container; a process of this machine waits for its end."""

    platform = DOCKER.name

    def master_command(self) -> Sequence[str]:
        return [sys.executable, "-P", "-m", "edl_docker.job_container"]

    def master(self, job_dir: Path, pid: int, start_time: int) -> LocalInstance:
        # Process numbers of a container mean nothing outside of it.
        return container_engine.read(job_dir) or process_identity.Process(pid, start_time)

    def check(self, job_dir: Path) -> None:
        container_engine.of_job(job_dir)

    def workers(self, job_dir: Path) -> list[LocalInstance]:
        # What lies in the job's directory was written in a container: a record of a process there
        # would name any process of the user.
        return list(container_engine.of_job(job_dir))

    def remove(self, job_dir: Path) -> None:
        container_engine.sweep(job_dir)

    def admit_export(self, spec: job_pb2.JobSpec, jobs: Path) -> None:
        known = {mount.path for mount in spec.containers.mounts}
        added = []
        if os.path.isdir(spec.export.snapshots):
            added.append(job_pb2.Mount(path=spec.export.snapshots))
        if spec.output and not scheme(spec.output):
            bind = BindMount(os.path.dirname(spec.output), writable=True)
            try:
                mounts.check("output", bind, os.path.expanduser("~"), str(jobs.absolute()))
            except Problem as problem:
                raise error_of(problem) from None
            added.append(job_pb2.Mount(path=bind.path, writable=True))
        spec.containers.mounts.extend(mount for mount in added if mount.path not in known)

    def install_remedy(self, command: Sequence[str]) -> str:
        return "The image has no edl_master: use a --base-image with worker and master."


class ContainerPlacement(LocalPlacement):
    """A container sees only the folders that its job names, under the same paths."""

    def resolve(self, job: Submission, environ: Mapping[str, str]) -> Submission:
        job = replace(job, engine=container_engine.engine_url(job.engine, environ))
        container_engine.check_engine(job.engine)
        return job

    def provide_image(
        self,
        job: Submission,
        image: str,
        on_pull: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> None:
        if not container_engine.has_image(job.engine, image):
            on_pull()
            container_engine.pull(job.engine, image, on_line)


def local_containers(root: Path | None = None) -> LocalJobBackend:
    """Return the backend for containers.

    Args:
        root: directory of all jobs; by default below ``$EDL_HOME``.
    """
    runtime = ContainerRuntime()
    store = JobStore(root, runtime)

    def encode(job: Submission) -> job_pb2.JobSpec:
        try:
            binds = mounts.binds(job, os.path.expanduser("~"), str(store.root.absolute()))
        except Problem as problem:
            raise error_of(problem) from None
        spec = encode_spec(job, str(store.path(job.name).absolute()), submission_time())
        _set_containers(spec, job, binds)
        return spec

    return LocalJobBackend(store, runtime, ContainerPlacement(encode), encode)


def _set_containers(spec: job_pb2.JobSpec, job: Submission, binds: Sequence[BindMount]) -> None:
    if job.model_zoo:
        spec.model.model_zoo = IMAGE_ZOO
    spec.containers.CopyFrom(
        job_pb2.ContainersSpec(
            engine=job.engine,
            user=f"{os.getuid()}:{os.getgid()}",
            mounts=[job_pb2.Mount(path=bind.path, writable=bind.writable) for bind in binds],
            model_zoo=job.model_zoo,
        )
    )
