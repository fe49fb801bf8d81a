"""``python -m edl.adapters.local.master_container --job-dir DIR``: the container of a job's master.

This process lives as long as the container and ends as the container ends. So to the job's
supervisor, its parent, every master is a child process. SIGTERM removes the container. If this
process is killed, the container continues, and the next process of this kind stays with it.

Workers in containers cannot start a process of the machine, so this process also looks at the
supervisor's lock (docs/adr/0016). It starts their containers, because the master does not see the
engine (docs/adr/0022), and signs the identities of all, because no container sees the job's
authority (docs/adr/0021).
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
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from google.protobuf import json_format

from edl.adapters.local import container_engine, job_identities, store_credentials
from edl.adapters.local.worker_containers import CONFINEMENT, WorkerContainers
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory, ownership, process_identity, supervision
from edl_runtime.local.container_calls import CallListener
from edl_runtime.local.containers import (
    LABEL_JOB,
    LABEL_JOB_DIR,
    LABEL_ROLE,
    PASSED_VARIABLE_PREFIXES,
)
from edl_runtime.monitoring import logs
from edl_runtime.monitoring.log_lines import FORMAT_VARIABLE, JSON

log = logging.getLogger(__name__)

LEAVE_S = 60.0
"""A master needs less than this from the end of its job to its own, beside the time for which it
keeps its page."""

_AGAIN_S = 0.5
_CHECK_EVERY_S = 1.0
_PROBE = (
    "python3 -P -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(\"edl_master\"))'"
    f" || exit {job_directory.NO_MASTER_PACKAGE};"
)
"""An image without ``edl_master`` ends with a code that says so."""

_OURS = (
    *(job_directory.SPEC, job_directory.SUPERVISOR, job_directory.SUPERVISOR_LOCK),
    *(job_directory.CONTAINER, job_directory.CONTAINER_LOCK, job_directory.CONTAINER_FILES),
    f"{job_directory.LOGS}/supervisor.log",
)
"""What processes of this machine take at its word, or write to: the master must not change it."""

_MOST_TASKS = 16_384
"""Processes and threads of a master with its parameter servers: one or two for each connection."""

_KEPT_S = 30 * 24 * 3600.0
"""What masters of an image have compiled is removed if the image was not used for so long."""

_SIGNALLED = 128  # shells and engines add a signal's number to this


class _TerminationRequested(BaseException):
    """This process received SIGTERM."""


def run(job_dir: Path) -> int:
    """Start the container, or find it; stay for its life and return its exit code.

    The code is 1 if the engine does not know it.

    Raises:
        EdlError: ENGINE_UNAVAILABLE; SYSTEM if the job's identities cannot be signed.
    """
    held = _hold_lock(job_dir)
    if held is None:
        return job_directory.DIRECTORY_TAKEN
    with held:
        spec = job_pb2.JobSpec()
        json_format.Parse(
            (job_dir / job_directory.SPEC).read_text(), spec, ignore_unknown_fields=True
        )
        identities = job_identities.of_job(job_dir)
        if identities is not None:
            identities.renew()
        stores = store_credentials.provide(job_dir, spec)
        container, runs = container_engine.read(job_dir), False
        if container is not None:
            runs = supervision.is_directory_held(job_dir) and container.is_alive
        if container is None or not runs:
            name = f"edl-{spec.name}-master-{secrets.token_hex(4)}"
            container = container_engine.Container(spec.containers.engine, name)
        _write_down(job_dir, container)
        if not runs and supervision.is_released(job_dir):
            return job_directory.DIRECTORY_TAKEN  # stopped before anybody could know this process
        supervision.SupervisorWatch(job_dir).start(_CHECK_EVERY_S)
        try:
            workers = WorkerContainers(spec, job_dir, identities, stores)
            with CallListener(job_dir, workers.handle):
                _watch_end(job_dir, container, spec.serving.keep_page_s + LEAVE_S)
                if not runs:
                    with container_engine.translated_errors(container.engine):
                        _start(container, spec, job_dir, identities, stores)
                code = _await_end(container, job_dir)
        except BaseException:
            with contextlib.suppress(EdlError):
                container.send(signal.SIGKILL)
            raise
        if code == 0:
            store_credentials.remove(job_dir)
        return code


def _hold_lock(job_dir: Path) -> IO[str] | None:
    """Lock the job's container; None if another process stays with it."""
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


def _write_down(job_dir: Path, container: container_engine.Container) -> None:
    this = process_identity.find(os.getpid())
    record = {
        "engine": container.engine,
        "name": container.name,
        "pid": os.getpid(),
        "start_time": this.start_time if this else 0,
    }
    # In place: the master's container sees this file as read-only, and would not see another one.
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
    identities: IdentityFolder | None,
    stores: store_credentials.StoreAccess,
) -> None:
    from docker.types import Mount

    client = container_engine.client(container.engine)
    image = spec.containers.master_image or spec.image
    kernels = _kernels(job_dir, image)
    output = job_dir / job_directory.LOGS / "master.log"
    places = {mount.path: mount.writable for mount in spec.containers.mounts}
    for place, writable in places.items():
        if writable:  # else the engine makes it, and it is root's
            Path(place).mkdir(parents=True, exist_ok=True)
    places |= {str(job_dir): True, str(kernels): True}
    # A mount cannot be renamed or removed in the container, so no link can take its place there:
    # processes of this machine write to the logs, and a job that exports the model is shown the
    # snapshots.
    for name in (job_directory.LOGS, job_directory.SNAPSHOTS):
        (job_dir / name).mkdir(exist_ok=True)
        places[str(job_dir / name)] = True
    places |= {str(job_dir / name): False for name in _OURS if (job_dir / name).exists()}
    hidden = []
    if identities is not None:
        own = [identities.provide(*each) for each in job_identities.of_master(spec)]
        # The folders, not the files: these are replaced when they are renewed.
        places |= {str(path.parent): False for path in own}
        # Over the rest, with the job's authority, lies an empty folder.
        cover = str(job_dir / job_directory.IDENTITY)
        hidden.append(
            Mount(cover, None, type="tmpfs", read_only=True, tmpfs_size=1 << 16, tmpfs_mode=0o755)
        )
    if stores.folder is not None:
        places[str(stores.folder)] = False
    environment = {FORMAT_VARIABLE: JSON}
    environment |= {k: v for k, v in os.environ.items() if k.startswith(PASSED_VARIABLE_PREFIXES)}
    environment |= stores.variables
    environment |= {"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "NUMBA_CACHE_DIR": str(kernels)}
    master = ["python3", "-P", "-m", "edl_master", "--job-dir", str(job_dir)]
    client.create_container(
        image=image,
        name=container.name,
        user=spec.containers.user,
        entrypoint=["sh", "-c", f'{_PROBE} exec "$@" >>{shlex.quote(str(output))} 2>&1', "sh"],
        command=master,
        environment=environment,
        labels={
            LABEL_JOB: spec.name,
            LABEL_JOB_DIR: str(job_dir),
            LABEL_ROLE: "master",
        },
        host_config=client.create_host_config(
            mounts=[
                *hidden,
                *(
                    Mount(place, place, type="bind", read_only=not writable)
                    for place, writable in sorted(places.items())
                ),
            ],
            auto_remove=True,
            **{**CONFINEMENT, "pids_limit": _MOST_TASKS},
        ),
    )
    client.start(container.name)


def _kernels(job_dir: Path, image: str) -> Path:
    """Where masters of an image keep what they have compiled.

    It is code, which the next master runs: so the containers of another image never see it.
    """
    name = hashlib.sha256(image.encode()).hexdigest()[:32]
    kernels = job_directory.home().absolute() / "kernels"
    kernels.mkdir(mode=0o755, parents=True, exist_ok=True)
    if ownership.is_own(kernels):
        for other in kernels.iterdir():
            if time.time() - other.lstat().st_mtime > _KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
    else:
        kernels = job_dir / job_directory.CONTAINER_FILES
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
            time.sleep(_AGAIN_S)


def _on_term(number: int, frame: object) -> None:
    raise _TerminationRequested


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and end as the container did."""
    parser = argparse.ArgumentParser(
        prog="edl.adapters.local.master_container", description=__doc__
    )
    parser.add_argument("--job-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--remove", action="store_true", help="all containers of the job instead")
    parsed = parser.parse_args(arguments)
    job_dir = parsed.job_dir.absolute()
    logs.set_up(logging.WARNING)
    logs.identify("companion", job=job_dir.name)
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
