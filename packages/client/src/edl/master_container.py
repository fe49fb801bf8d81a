"""``python -m edl.master_container --job-dir DIR``: the container of a job's master.

This process lives as long as the container and ends as that ends. So whoever starts masters and
watches over them (``adapters.launcher``, ``edl.supervisor``) sees a process, as without containers.
Ending this process with SIGTERM removes the container; if it is killed, the container goes on.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from google.protobuf import json_format

from edl.adapters import container_engine
from edl_proto.errors import EdlError
from edl_proto.local import job_directory, process_identity, supervision
from edl_proto.local.containers import (
    LABEL_JOB,
    LABEL_JOB_DIR,
    LABEL_ROLE,
    PASSED_VARIABLE_PREFIXES,
)
from edl_proto.v1 import job_pb2

log = logging.getLogger(__name__)

_AGAIN_S = 0.5
_OTHER_STARTS_S = 60.0
_SIGNALLED = 128  # shells and engines add a signal's number to this


class _Asked(BaseException):
    """Somebody wants this master ended."""


def run(job_dir: Path) -> int:
    """Start the container, stay for its life, and return its exit code; 1 if that is not known.

    Raises:
        EdlError: ENGINE_UNAVAILABLE.
    """
    held = _alone(job_dir)
    if held is None:
        return job_directory.DIRECTORY_TAKEN
    with held:
        spec = job_pb2.JobSpec()
        json_format.Parse(
            (job_dir / job_directory.SPEC).read_text(), spec, ignore_unknown_fields=True
        )
        name = f"edl-{spec.name}-master-{secrets.token_hex(4)}"
        container = container_engine.Container(spec.containers.engine, name)
        _write_down(job_dir, container)
        try:
            with container_engine.told(container.engine):
                _start(container, spec, job_dir)
            return _await_end(container, job_dir)
        except BaseException:
            container.send(signal.SIGKILL)
            raise


def _alone(job_dir: Path) -> IO[str] | None:
    """Be the only one who starts this job's container; None if the job gets a master anyway.

    The master's own lock is taken only when its container is up.
    """
    file = (job_dir / job_directory.CONTAINER_LOCK).open("a")
    deadline = time.monotonic() + _OTHER_STARTS_S
    while not supervision.has_master(job_dir):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)
    file.close()
    return None


def _write_down(job_dir: Path, container: container_engine.Container) -> None:
    this = process_identity.find(os.getpid())
    record = {
        "engine": container.engine,
        "name": container.name,
        "pid": os.getpid(),
        "start_time": this.start_time if this else 0,
    }
    draft = job_dir / f".{job_directory.CONTAINER}.{os.getpid()}.tmp"
    draft.write_text(json.dumps(record))
    draft.replace(job_dir / job_directory.CONTAINER)


def _start(container: container_engine.Container, spec: job_pb2.JobSpec, job_dir: Path) -> None:
    from docker.types import Mount

    client = container_engine.client(container.engine)
    kernels = job_directory.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (job_dir / job_directory.LOGS).mkdir(exist_ok=True)
    output = job_dir / job_directory.LOGS / "master.log"
    output.touch()
    places = {mount.path: mount.writable for mount in spec.containers.mounts}
    for place, writable in places.items():
        if writable:  # else the engine makes it, and it is root's
            Path(place).mkdir(parents=True, exist_ok=True)
    # A folder that is seen twice could not be renamed or removed.
    places = {p: w for p, w in places.items() if not p.startswith(f"{job_dir}/")}
    places |= {str(job_dir): True, str(kernels.absolute()): True}
    groups = []
    if container.engine.startswith("unix://"):
        # Workers are started by the master; they themselves never see the engine.
        socket = container.engine.removeprefix("unix://")
        places[socket] = True
        groups.append(str(os.stat(socket).st_gid))
    environment = {k: v for k, v in os.environ.items() if k.startswith(PASSED_VARIABLE_PREFIXES)}
    environment |= {"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "NUMBA_CACHE_DIR": str(kernels)}
    master = ["python3", "-P", "-m", "edl_master", "--job-dir", str(job_dir)]
    client.create_container(
        image=spec.image,
        name=container.name,
        user=spec.containers.user,
        entrypoint=["sh", "-c", f'exec "$@" >>{shlex.quote(str(output))} 2>&1', "sh"],
        command=master,
        environment=environment,
        labels={
            LABEL_JOB: spec.name,
            LABEL_JOB_DIR: str(job_dir),
            LABEL_ROLE: "master",
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
            log.warning("the engine does not tell of %s: %s", container.name, error)
            if not supervision.has_master(job_dir):
                return 1
            time.sleep(_AGAIN_S)


def _on_term(number: int, frame: object) -> None:
    raise _Asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and end as the container did."""
    parser = argparse.ArgumentParser(prog="edl.master_container", description=__doc__)
    parser.add_argument("--job-dir", type=Path, required=True, metavar="DIR")
    job_dir = parser.parse_args(arguments).job_dir.absolute()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _on_term)
    try:
        code = run(job_dir)
    except _Asked:
        code = _SIGNALLED + signal.SIGTERM
    except EdlError as error:
        print(error, file=sys.stderr)
        return 1
    if code > _SIGNALLED:
        # A supervisor tells a master that was killed from one that failed.
        number = code - _SIGNALLED
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


if __name__ == "__main__":
    sys.exit(main())
