"""Starts the master of a job as a container of this machine's engine."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import time
from pathlib import Path

from edl import codec
from edl.adapters import engine, processes
from edl.adapters.jobs import START_DEADLINE_S, JobStore, MasterRecord, tail
from edl_proto import jobdir
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2

_POLL_S = 0.05
_END_S = 3.0
_LOG_LINES = 20

# What masters and workers may learn of this environment; secrets are none of these.
_PASSED_ON = ("TF_", "OMP_", "KERAS_", "XLA_", "CUDA_", "EDL_LOG_LEVEL", "EDL_MASTER_WAIT_S")


class DockerLauncher:
    """Starts masters as containers of this machine's engine.

    Args:
        store: where the jobs are.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def start(self, name: str, deadline_s: float = START_DEADLINE_S) -> MasterRecord:
        """Start the master of a job whose directory exists, and wait until it listens.

        Raises:
            EdlError: what the master says is wrong, ENGINE_UNAVAILABLE, or MASTER_LOST if it
                ended without a word or does not listen in time; nothing of it is left then.
        """
        path = self._store.path(name).absolute()
        spec = self._store.read(name).spec
        url = spec.containers.engine
        container = engine.Container(url, f"edl-{name}-master-{secrets.token_hex(4)}")
        record = {"engine": container.engine, "name": container.name}
        (path / jobdir.CONTAINER).write_text(json.dumps(record))
        try:
            with engine.told(url):
                self._run(container, spec, path)
            return self._await(name, container, deadline_s)
        except BaseException:
            processes.end([container], _END_S)
            engine.sweep(path)
            raise

    def _run(self, container: engine.Container, spec: job_pb2.JobSpec, path: Path) -> None:
        from docker.types import Mount

        client = engine.client(container.engine)
        kernels = jobdir.home() / "kernels"
        kernels.mkdir(parents=True, exist_ok=True)
        (path / jobdir.LOGS).mkdir(exist_ok=True)
        log = path / jobdir.LOGS / "master.log"
        log.touch()
        places = {mount.path: mount.writable for mount in spec.containers.mounts}
        for place, writable in places.items():
            if writable:  # else the engine makes it, and it is root's
                Path(place).mkdir(parents=True, exist_ok=True)
        # A folder that is seen twice could not be renamed or removed.
        places = {p: w for p, w in places.items() if not p.startswith(f"{path}/")}
        places |= {str(path): True, str(kernels.absolute()): True}
        groups = []
        if container.engine.startswith("unix://"):
            # Workers are started by the master; they themselves never see the engine.
            socket = container.engine.removeprefix("unix://")
            places[socket] = True
            groups.append(str(os.stat(socket).st_gid))
        environment = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
        environment |= {"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "NUMBA_CACHE_DIR": str(kernels)}
        master = ["python3", "-P", "-m", "edl_master", "--job-dir", str(path)]
        client.create_container(
            image=spec.image,
            name=container.name,
            user=spec.containers.user,
            entrypoint=["sh", "-c", f'exec "$@" >>{shlex.quote(str(log))} 2>&1', "sh"],
            command=master,
            environment=environment,
            labels={
                jobdir.LABEL_JOB: spec.name,
                jobdir.LABEL_JOB_DIR: str(path),
                jobdir.LABEL_ROLE: "master",
            },
            host_config=client.create_host_config(
                mounts=[
                    Mount(place, place, type="bind", read_only=not writable)
                    for place, writable in sorted(places.items())
                ],
                # The master listens on this machine's loopback, as it does without a container.
                network_mode="host",
                init=True,
                auto_remove=True,
                group_add=groups,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                read_only=True,
                tmpfs={"/tmp": "rw,nosuid,nodev,mode=1777"},
                log_config={"Type": "none"},
            ),
        )
        client.start(container.name)

    def _await(self, name: str, container: engine.Container, deadline_s: float) -> MasterRecord:
        deadline = time.monotonic() + deadline_s
        while True:
            alive = container.is_alive
            # After the look: a master that has ended has written all that it will.
            record = self._store.master(name)
            if record is not None:
                return record
            if not alive:
                raise self._early_end(name)
            if time.monotonic() > deadline:
                raise EdlError(
                    error_pb2.MASTER_LOST,
                    f"the job's master did not listen within {deadline_s:.0f} s; it was ended",
                    where=str(self._store.log(name)),
                    remedy="The log may tell what it waits for.",
                    detail=self._store.log_tail(name),
                )
            time.sleep(_POLL_S)

    def _early_end(self, name: str) -> EdlError:
        failure = self._store.status(name).failure
        if failure is not None:
            return codec.error_of(failure)
        log = self._store.log(name)
        detail = tail(log, _LOG_LINES)
        missing = "No module named edl_master" in detail
        return EdlError(
            error_pb2.MASTER_LOST,
            "the job's master ended before it listened",
            where=str(log),
            remedy="The image has no edl_master: use a --base-image with worker and master."
            if missing
            else "The end of its log is below.",
            detail=detail,
        )
