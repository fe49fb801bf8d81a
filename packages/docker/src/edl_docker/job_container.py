"""``python -P -m edl_docker.job_container --job-dir DIR``: runs the container of a job.

To the job's supervisor, its parent, this process is the master: it waits for the end of the
container, and ends with the same exit code. SIGTERM removes the container. If this process is
killed, the container continues, and the next process of this kind waits for it.

Processes in a container cannot start any outside, so this process looks at the supervisor's lock
for them (docs/adr/0016). What the container may see and do is in docs/adr/0030.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import os
import secrets
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from google.protobuf import json_format

from edl_docker import container_engine, store_credentials
from edl_docker.container_engine import LABEL_JOB, LABEL_JOB_DIR
from edl_proto.errors import EdlError
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory, ownership, process_identity, supervision
from edl_runtime.monitoring import logs
from edl_runtime.monitoring.log_lines import FORMAT_VARIABLE, JSON

log = logging.getLogger(__name__)

LEAVE_S = 60.0
"""A master needs less than this from the end of its job to its own, beside the time for which it
keeps its page."""

CONFINEMENT: Mapping[str, Any] = {
    # The first process of a container ignores every signal that it does not handle.
    "init": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "tmpfs": {"/tmp": "rw,nosuid,nodev,mode=1777"},
    "log_config": {"Type": "none"},
    # Processes and threads: TensorFlow has some for each core, and the master one or two for each
    # connection. Without a limit, a loop of forks would leave none to the machine.
    "pids_limit": 16_384,
    # The master listens on this machine's loopback, as it does without a container.
    "network_mode": "host",
}
"""What the container of a job may not do."""

ALL_GPUS: Mapping[str, Any] = {
    "count": -1,
    # utility: nvidia-smi, with which the master finds the GPUs that it gives to workers.
    "capabilities": [["gpu", "compute", "utility"]],
}
"""The request for GPUs, as an engine with NVIDIA's container toolkit understands it."""

PASSED_VARIABLES = (
    *("TF_", "OMP_", "KERAS_", "XLA_", "CUDA_"),
    *("EDL_LOG_FORMAT", "EDL_LOG_LEVEL", "EDL_MASTER_WAIT_S"),
)
"""Prefixes of the environment variables that the container gets; none of them holds a secret."""

_RETRY_S = 0.5
_CHECK_EVERY_S = 1.0

_SCRIPT = """\
find='import importlib.util as u, sys; sys.exit(not u.find_spec("edl_master"))'
python3 -P -c "$find" || exit {no_master}
trap 'asked=1; kill -TERM "$!"' TERM
while began=$(date +%s); do
  "$@" >>{log} 2>&1 &
  while wait "$!"; code=$?; kill -0 "$!" 2>/dev/null; do :; done
  lived=$(($(date +%s) - began))
  [ "$code" -gt 128 ] && [ -z "$asked" ] && [ "$lived" -ge {settled_s} ] || exit "$code"
done
"""
"""Runs masters. An image without ``edl_master`` ends with a code that says so. A signal that ends
a master which has worked for a while leaves its workers to the next master; after any other end
the container ends, and the supervisor decides."""

_SETTLED_S = 20
"""After so long the supervisor, too, would start the next master at once
(``edl.core.supervision.START_FAILURE_S``)."""

_TRUSTED = (
    *(job_directory.SPEC, job_directory.SUPERVISOR, job_directory.SUPERVISOR_LOCK),
    *(job_directory.CONTAINER, job_directory.CONTAINER_LOCK),
    f"{job_directory.LOGS}/supervisor.log",
    f"{job_directory.IDENTITY}/authority.pem",
)
"""Files that processes outside trust, or write to: the container cannot change them."""

_CALLERS = (Role.CLIENT, Role.VIEWER)
"""Processes outside write their identities, in folders that the container does not see."""

_KEPT_S = 30 * 24 * 3600.0
"""What masters of an image have compiled is removed if the image was not used for so long."""

_SIGNALLED = 128  # shells and engines add a signal's number to this


class _TerminationRequested(BaseException):
    """This process received SIGTERM."""


def run(job_dir: Path) -> int:
    """Start the container, or find it; wait for its end and return its exit code.

    The code is 1 if the engine does not know it.

    Raises:
        EdlError: ENGINE_UNAVAILABLE.
    """
    held = _hold_lock(job_dir)
    if held is None:
        return job_directory.DIRECTORY_TAKEN
    with held:
        spec = job_pb2.JobSpec()
        json_format.Parse(
            (job_dir / job_directory.SPEC).read_text(), spec, ignore_unknown_fields=True
        )
        stores = store_credentials.provide(job_dir, spec)
        container = container_engine.read(job_dir)
        # Whether its master holds the directory does not count: one may be starting in it.
        runs = container is not None and container.is_alive
        if container is None or not runs:
            name = f"edl-{spec.name}-{secrets.token_hex(4)}"
            container = container_engine.Container(spec.containers.engine, name)
        _write_record(job_dir, container)
        if not runs and supervision.is_released(job_dir):
            return job_directory.DIRECTORY_TAKEN  # stopped before this process was known
        supervision.SupervisorWatch(job_dir).start(_CHECK_EVERY_S)
        try:
            _watch_end(job_dir, container, spec.serving.keep_page_s + LEAVE_S)
            if not runs:
                with container_engine.translated_errors(container.engine):
                    _start(container, spec, job_dir, stores)
            code = _await_end(container, job_dir)
        except BaseException:
            with contextlib.suppress(EdlError):
                container.send(signal.SIGKILL)
            raise
        if code == 0:
            store_credentials.remove(job_dir)
        return code


def _hold_lock(job_dir: Path) -> IO[str] | None:
    """Lock the job's container; None if another process waits for its end."""
    file = (job_dir / job_directory.CONTAINER_LOCK).open("a")
    try:
        supervision.take_lock(file.fileno())
    except BlockingIOError:
        file.close()
        return None
    return file


def _watch_end(job_dir: Path, container: container_engine.Container, stay_s: float) -> None:
    """Kill a master that stays longer than ``stay_s`` after the end of its job."""

    def check() -> None:
        over_at: float | None = None
        while over_at is None or time.monotonic() - over_at < stay_s:
            if not supervision.final_state(job_dir):
                over_at = None
            elif over_at is None:
                over_at = time.monotonic()
            time.sleep(_CHECK_EVERY_S)
        log.warning("the job is over, but its master does not end: it is killed")
        try:
            container.send(signal.SIGKILL)
        except EdlError as error:
            log.warning("it is not killed\n%s", error)

    threading.Thread(target=check, name="end-watch", daemon=True).start()


def _write_record(job_dir: Path, container: container_engine.Container) -> None:
    this = process_identity.find(os.getpid())
    record = {
        "engine": container.engine,
        "name": container.name,
        "pid": os.getpid(),
        "start_time": this.start_time if this else 0,
    }
    # In place: the container sees this file as read-only, and would not see another one.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(job_dir / job_directory.CONTAINER, flags, 0o600)
    try:
        content = json.dumps(record).encode()
        os.pwrite(file, content.ljust(os.fstat(file).st_size), 0)  # spaces end it
    finally:
        os.close(file)


def _start(
    container: container_engine.Container,
    spec: job_pb2.JobSpec,
    job_dir: Path,
    stores: store_credentials.StoreAccess,
) -> None:
    from docker.types import DeviceRequest, Mount

    client = container_engine.client(container.engine)
    kernels = _kernels(job_dir, spec.image)
    environment = {FORMAT_VARIABLE: JSON}
    environment |= {k: v for k, v in os.environ.items() if k.startswith(PASSED_VARIABLES)}
    environment |= stores.variables
    environment |= {"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "NUMBA_CACHE_DIR": str(kernels)}
    script = _SCRIPT.format(
        no_master=job_directory.NO_MASTER_PACKAGE,
        log=shlex.quote(str(job_dir / job_directory.LOGS / "master.log")),
        settled_s=_SETTLED_S,
    )
    identities = job_dir / job_directory.IDENTITY
    hidden = [identities / role.value for role in _CALLERS if identities.is_dir()]
    places = {**_places(spec, job_dir), str(kernels): True}
    if stores.folder is not None:
        places[str(stores.folder)] = False
    client.create_container(
        image=spec.image,
        name=container.name,
        user=spec.containers.user,
        entrypoint=["sh", "-c", script, "sh"],
        command=["python3", "-P", "-m", "edl_master", "--job-dir", str(job_dir)],
        environment=environment,
        labels={LABEL_JOB: spec.name, LABEL_JOB_DIR: str(job_dir)},
        host_config=client.create_host_config(
            mounts=[
                *(
                    Mount(place, place, type="bind", read_only=not writable)
                    for place, writable in sorted(places.items())
                ),
                *(
                    Mount(str(path), None, type="tmpfs", read_only=True, tmpfs_size=1 << 16)
                    for path in hidden
                ),
            ],
            device_requests=[DeviceRequest(**ALL_GPUS)] if wants_gpus(spec) else None,
            auto_remove=True,
            **CONFINEMENT,
        ),
    )
    client.start(container.name)


def wants_gpus(spec: job_pb2.JobSpec) -> bool:
    """Return whether a job's container gets the GPUs of the machine."""
    return spec.gpus in ("each", "shared")


def _places(spec: job_pb2.JobSpec, job_dir: Path) -> dict[str, bool]:
    """Return what the container sees of this machine, and whether it may write there."""
    places = {mount.path: mount.writable for mount in spec.containers.mounts}
    for place, writable in places.items():
        if writable:  # else the engine makes it, and it is root's
            Path(place).mkdir(parents=True, exist_ok=True)
    places[str(job_dir)] = True
    # A mount cannot be renamed or removed in the container, so no link can take its place there:
    # processes outside write to the logs, find their identities in the folder of all, and show
    # the snapshots to a job that exports the model.
    for name in (job_directory.LOGS, job_directory.SNAPSHOTS):
        (job_dir / name).mkdir(exist_ok=True)
        places[str(job_dir / name)] = True
    if (job_dir / job_directory.IDENTITY).is_dir():
        places[str(job_dir / job_directory.IDENTITY)] = True
    return places | {str(job_dir / it): False for it in _TRUSTED if (job_dir / it).exists()}


def _kernels(job_dir: Path, image: str) -> Path:
    """Return the folder in which masters of an image keep what they have compiled.

    It is code, which the next master runs: so containers of other images never see it.
    """
    name = hashlib.sha256(image.encode()).hexdigest()[:32]
    kernels = job_directory.home().absolute() / "kernels"
    kernels.mkdir(mode=0o755, parents=True, exist_ok=True)
    if ownership.is_own(kernels):
        for other in kernels.iterdir():
            if time.time() - other.lstat().st_mtime > _KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
    else:
        kernels = job_dir / "kernels"
        kernels.mkdir(mode=0o700, exist_ok=True)
    (kernels / name).mkdir(mode=0o700, exist_ok=True)
    os.utime(kernels / name)
    return kernels / name


def _await_end(container: container_engine.Container, job_dir: Path) -> int:
    """Wait until the container is gone, also over a time in which the engine does not answer."""
    from docker.errors import NotFound

    while True:
        try:
            client: Any = container_engine.client(container.engine, None)
            return int(client.wait(container.name, condition="removed")["StatusCode"])
        except NotFound:
            return 1
        except Exception as error:
            log.warning("the engine gives no state of %s: %s", container.name, error)
            if not supervision.is_directory_held(job_dir):
                return 1
            time.sleep(_RETRY_S)


def _on_term(number: int, frame: object) -> None:
    raise _TerminationRequested


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and end as the container did."""
    parser = argparse.ArgumentParser(prog="edl_docker.job_container", description=__doc__)
    parser.add_argument("--job-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--remove", action="store_true", help="remove what is left of it instead")
    parsed = parser.parse_args(arguments)
    job_dir = parsed.job_dir.absolute()
    logs.set_up(logging.WARNING)
    logs.identify("container", job=job_dir.name)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        if parsed.remove:
            container_engine.sweep(job_dir)
            return 0
        signal.signal(signal.SIGTERM, _on_term)
        code = run(job_dir)
    except _TerminationRequested:
        code = _SIGNALLED + signal.SIGTERM
    except EdlError as error:
        print(error, file=sys.stderr)
        return 1
    if code > _SIGNALLED:
        # A supervisor distinguishes a killed master from one that failed.
        number = code - _SIGNALLED
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


if __name__ == "__main__":
    sys.exit(main())
