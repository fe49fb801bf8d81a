"""The containers of one job's workers, which its master has started without seeing the engine.

Whoever can use the engine is root on the machine, and a master runs in an image that may be the
work of others. So the companion of the master's container starts its workers
(docs/adr/0022). Of a container the master chooses the number, the command within the image and the
variables; the image, the user, what the container sees of the machine, who it can prove to be and
what it may do are the job's, and only containers of the job can be signalled or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edl.adapters.local import container_engine
from edl.adapters.local.store_credentials import StoreAccess
from edl_proto.errors import EdlError
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory
from edl_runtime.local.container_calls import CallRefusedError
from edl_runtime.local.containers import (
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_JOB_DIR,
    LABEL_LOG_START,
    LABEL_ROLE,
    LABEL_WORKER,
)

MOST = 1024
"""Containers of one job at a time."""

CONFINEMENT: Mapping[str, Any] = {
    # The first process of a container ignores every signal that it does not handle.
    "init": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "tmpfs": {"/tmp": "rw,nosuid,nodev,mode=1777"},
    "log_config": {"Type": "none"},
    # Processes and threads. TensorFlow has some for each core; without a limit, a loop of forks
    # would leave none to the machine.
    "pids_limit": 4096,
    # The master listens on this machine's loopback, as it does without a container.
    "network_mode": "host",
}
"""What no container of a job may do, master or worker."""

_LOG = "/run/edl.log"
_SIGNALS = {each.name: each for each in (signal.SIGTERM, signal.SIGKILL)}


class WorkerContainers:
    """Carries out calls of a job's master: ``start``, ``list``, ``wait``, ``signal``, ``remove``.

    Args:
        spec: of the job; the master cannot change it.
        job_dir: of the job.
        identities: of the job; None if it is not secured.
        stores: how containers reach the stores of the job.
    """

    def __init__(
        self,
        spec: job_pb2.JobSpec,
        job_dir: Path,
        identities: IdentityFolder | None = None,
        stores: StoreAccess | None = None,
    ) -> None:
        self._spec = spec
        self._stores = stores or StoreAccess()
        self._job_dir = job_dir
        self._identities = identities
        self._url = spec.containers.engine
        self._name = re.compile(
            rf"edl-{re.escape(spec.name)}-worker-([0-9]+)-([0-9]+)-[0-9a-f]{{8}}"
        )
        (job_dir / job_directory.CONTAINER_FILES).mkdir(mode=0o700, exist_ok=True)

    def handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out one call.

        Raises:
            CallRefusedError: it is none of the five, the container is none of this job's, or the
                engine did not do it.
        """
        match request:
            case {"call": "start", "instance": str(name), "log_start": int(start), **more}:
                command, environment = more.get("command"), more.get("environment")
                with self._engine() as engine:
                    return self._start(engine, name, start, _texts(command), _pairs(environment))
            case {"call": "list"}:
                with self._engine() as engine:
                    return {"containers": [_described(each) for each in self._found(engine)]}
            case {"call": "wait", "instance": str(name), "seconds": (int() | float()) as seconds}:
                with self._engine() as engine:
                    return self._wait(engine, name, min(max(float(seconds), 0.0), 60.0))
            case {"call": "signal", "instance": str(name), "signal": str(number)}:
                with self._engine() as engine:
                    return {"sent": self._signal(engine, name, number)}
            case {"call": "remove", "instance": str(name)}:
                with self._engine() as engine:
                    self._remove(engine, name)
                return {}
            case _:
                raise CallRefusedError("there is no such call")

    # --- calls -----------------------------------------------------------------------------

    def _start(
        self,
        engine: Any,
        name: str,
        log_start: int,
        command: list[str],
        environment: dict[str, str],
    ) -> Mapping[str, Any]:
        from docker.errors import APIError
        from docker.types import Mount

        worker, attempt = self._numbers(name)
        if self._state(engine, name) is not None:
            return {}  # the master did not get the answer, and calls again
        if sum(1 for _ in self._found(engine)) >= MOST:
            raise CallRefusedError(f"the job has {MOST} containers already")
        mounts = [
            Mount(each.path, each.path, type="bind", read_only=not each.writable)
            for each in self._spec.containers.mounts
            if each.for_workers
        ]
        if self._identities is not None:
            # The folder, not the file: that is replaced when it is renewed.
            own = str(self._identity(self._identities, worker).parent)
            mounts.append(Mount(own, own, type="bind", read_only=True))
        if self._stores.folder is not None:
            shown = str(self._stores.folder)
            mounts.append(Mount(shown, shown, type="bind", read_only=True))
        # The log is a file of the job, which survives master, container and engine.
        mounts.append(Mount(_LOG, str(self._log(worker)), type="bind"))
        try:
            engine.create_container(
                image=self._spec.image,
                name=name,
                user=self._spec.containers.user,
                entrypoint=["sh", "-c", f'exec "$@" >>{_LOG} 2>&1', "sh"],
                command=command,
                environment={**environment, **self._stores.variables, "EDL_INSTANCE": name},
                labels={
                    LABEL_JOB: self._spec.name,
                    LABEL_JOB_DIR: str(self._job_dir),
                    LABEL_ROLE: "worker",
                    LABEL_WORKER: str(worker),
                    LABEL_ATTEMPT: str(attempt),
                    LABEL_LOG_START: str(log_start),
                },
                host_config=engine.create_host_config(mounts=mounts, **CONFINEMENT),
            )
            engine.start(name)
        except BaseException:
            with contextlib.suppress(APIError):
                engine.remove_container(name, force=True, v=True)
            raise
        return {}

    def _wait(self, engine: Any, name: str, seconds: float) -> Mapping[str, Any]:
        import requests

        state = self._state(engine, name)
        if state is not None and state.get("Running"):
            with contextlib.suppress(requests.Timeout, requests.ConnectionError):
                engine.wait(name, timeout=seconds)
            state = self._state(engine, name)
        if state is None:
            return {"state": "gone"}
        if state.get("Running"):
            return {"state": "running"}
        return {
            "state": "ended",
            "exit_code": int(state["ExitCode"]),
            "out_of_memory": bool(state.get("OOMKilled")),
        }

    def _signal(self, engine: Any, name: str, number: str) -> bool:
        from docker.errors import APIError

        if number not in _SIGNALS:
            raise CallRefusedError(f"{number} is not sent to workers")
        if self._state(engine, name) is None:
            return False
        try:
            engine.kill(name, _SIGNALS[number].value)
        except APIError:
            return False  # it has ended meanwhile
        return True

    def _remove(self, engine: Any, name: str) -> None:
        from docker.errors import APIError

        if self._state(engine, name) is not None:
            with contextlib.suppress(APIError):
                engine.remove_container(name, force=True, v=True)

    # --- only what is this job's -----------------------------------------------------------

    def _numbers(self, name: str) -> tuple[int, int]:
        found = self._name.fullmatch(name)
        if found is None:
            raise CallRefusedError(f"{name!r} is not the name of a worker's container of this job")
        return int(found[1]), int(found[2])

    def _state(self, engine: Any, name: str) -> Mapping[str, Any] | None:
        """The state of a container of this job's workers; None if it is gone.

        Raises:
            CallRefusedError: the container is none of theirs.
        """
        from docker.errors import NotFound

        self._numbers(name)
        try:
            found = engine.inspect_container(name)
        except NotFound:
            return None
        labels = found["Config"]["Labels"] or {}
        if (labels.get(LABEL_JOB_DIR), labels.get(LABEL_ROLE)) != (str(self._job_dir), "worker"):
            raise CallRefusedError(f"{name} is a container of another job")
        state: Mapping[str, Any] = found["State"]
        return state

    def _found(self, engine: Any) -> Iterator[Mapping[str, Any]]:
        labels = [f"{LABEL_JOB_DIR}={self._job_dir}", f"{LABEL_ROLE}=worker"]
        for each in engine.containers(all=True, filters={"label": labels}):
            if self._name.fullmatch(each["Names"][0].lstrip("/")):
                yield each

    def _identity(self, identities: IdentityFolder, worker: int) -> Path:
        try:
            return identities.provide(Role.WORKER, worker)
        except EdlError as error:
            raise CallRefusedError(f"worker {worker} gets no identity: {error.what}") from error

    def _log(self, worker: int) -> Path:
        """A place of a worker's log that the master cannot exchange for another file.

        The master writes into the folder of the logs, so that it could put a link there to a file
        of the user, which the engine would follow. What is mounted is a second name of the log,
        in a folder that the master only reads.
        """
        name = f"worker-{worker}.log"
        place = self._job_dir / job_directory.CONTAINER_FILES / name
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            log = os.open(self._job_dir / job_directory.LOGS / name, flags, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(log).st_mode):
                    raise CallRefusedError(f"{name} is no file")
                if not place.exists() or not os.path.samestat(place.stat(), os.fstat(log)):
                    place.unlink(missing_ok=True)
                    os.link(f"/proc/self/fd/{log}", place, src_dir_fd=log, follow_symlinks=True)
            finally:
                os.close(log)
        except OSError as error:
            raise CallRefusedError(f"the log {name} cannot be used: {error.strerror}") from error
        return place

    @contextlib.contextmanager
    def _engine(self) -> Iterator[Any]:
        """A connection of its own for each call: a call may wait for long."""
        try:
            with container_engine.translated_errors(self._url):
                engine = container_engine.connect(self._url)
                try:
                    yield engine
                finally:
                    engine.close()
        except EdlError as error:
            raise CallRefusedError(error.what) from error


def _described(found: Mapping[str, Any]) -> dict[str, Any]:
    labels = found["Labels"]
    return {
        "instance": found["Names"][0].lstrip("/"),
        "running": found["State"] == "running",
        "worker": int(labels[LABEL_WORKER]),
        "attempt": int(labels[LABEL_ATTEMPT]),
        "log_start": int(labels[LABEL_LOG_START]),
    }


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise CallRefusedError("the command is not a list of texts")
    return value


def _pairs(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise CallRefusedError("the environment is not an object of texts")
    return value
