"""A Docker engine, a registry and a base image of our own, on this machine, for one test run.

Needs root and Debian's ``docker.io``, ``docker-registry`` and ``debootstrap``. Everything lies
below one temporary folder and listens on loopback or a socket in that folder; only processes
started here are ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from tests import debian_base, image_packages
from tests.ports import free_port

from . import layers

DEADLINE_S = 200.0
_PLENTY = 12 << 30
_PREFIX = "edl-docker-"
_ROOT = Path(__file__).parents[2]

_REGISTRY = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {folder}}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def missing_requirements() -> str:
    """Why there can be no engine here; empty if there can."""
    if os.geteuid() != 0:
        return "starting a Docker engine needs root"
    missing = [
        f"{command} (package {package})"
        for command, package in (
            ("dockerd", "docker.io"),
            ("docker-registry", "docker-registry"),
            ("debootstrap", "debootstrap"),
        )
        if shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
    ]
    return f"not installed: {', '.join(missing)}" if missing else ""


@dataclass(frozen=True)
class DockerEnvironment:
    """An engine and a registry.

    Attributes:
        engine: URL of its socket.
        registry: ``127.0.0.1:PORT``, without TLS.
        bare: name of an image with Debian, Python and pip.
        base: the same with the worker's module, so that builds need not install it.
        job_base: with all that a job needs; ``job_base.make`` makes it.
    """

    engine: str
    registry: str
    folder: Path

    @property
    def bare(self) -> str:
        return f"{self.registry}/edl-test/bare:1"

    @property
    def base(self) -> str:
        return f"{self.registry}/edl-test/base:1"

    @property
    def job_base(self) -> str:
        return f"{self.registry}/edl-test/job:1"

    def client(self) -> Any:
        """The engine's own interface."""
        return docker.DockerClient(base_url=self.engine, version="auto", timeout=300)


def exec_output(container: Any, command: Sequence[str]) -> str:
    """Return what a command prints in a running container, to either stream.

    The engine may lose the output of a process that ends at once; the command then runs again.
    """
    for _ in range(10):
        if output := container.exec_run(list(command)).output:
            return str(output.decode())
    raise AssertionError(f"{command} prints nothing in {container.name}")


class NoEngine(Exception):
    """It could not be started; the message says why."""


@contextlib.contextmanager
def open_environment(*, bases: bool = True) -> Iterator[DockerEnvironment]:
    """Start everything, and end it.

    Args:
        bases: make the images ``bare`` and ``base``.

    Raises:
        NoEngine: one of the parts does not start on this machine.
    """
    if running := os.environ.get("EDL_DOCKER_ENVIRONMENT"):
        # `python -m tests.builder.docker_environment` keeps one for a developer's many runs.
        url, registry = running.split()
        yield DockerEnvironment(url, registry, Path(url.removeprefix("unix://")).parent)
        return
    # Not below pytest's folder: a socket's path is short, and images are large.
    parent = Path(_fast_folder() or tempfile.gettempdir())
    remove_left(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        with contextlib.ExitStack() as running:
            port = free_port()
            running.enter_context(_registry(folder, port))
            url = running.enter_context(_engine(folder))
            docker_env = DockerEnvironment(url, f"127.0.0.1:{port}", folder)
            if bases:
                _make_base(docker_env)
            yield docker_env
    finally:
        debian_base.remove(folder)


def remove_left(parent: Path) -> None:
    """Remove the folders of runs that were killed: each has gigabytes, perhaps in memory."""
    for folder in parent.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            debian_base.remove(folder)


def _fast_folder() -> str | None:
    """Memory, if there is plenty: package managers wait for a disk at each file."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < _PLENTY:
        return None
    flags = os.statvfs(memory).f_flag
    return None if flags & (os.ST_NODEV | os.ST_NOEXEC) else str(memory)


@contextlib.contextmanager
def run_program(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a session of its own; end it and its children after the block."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            # Even if this run is killed, it ends with it.
            ["setpriv", "--pdeathsig", "TERM", "--", *command],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(what: str, probe: Any, deadline_s: float = DEADLINE_S) -> Any:
    """Ask until the answer is true; fail with ``what`` after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def _registry(folder: Path, port: int) -> Iterator[None]:
    settings = folder / "registry.yml"
    settings.write_text(_REGISTRY.format(folder=folder / "registry", port=port))
    log = folder / "registry.log"
    with run_program(["docker-registry", "serve", str(settings)], log) as process:

        def answers() -> bool:
            if process.poll() is not None:
                raise NoEngine(f"docker-registry ended: {log.read_text()[-500:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=30):
                    return True
            except OSError:
                return False

        until("the registry answers", answers)
        yield


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[str]:
    problems = []
    for driver in ("overlay2", "fuse-overlayfs", "vfs"):
        url = f"unix://{folder}/docker.sock"
        log = folder / f"dockerd-{driver}.log"
        command = [
            shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin") or "dockerd",
            *("--host", url),
            *("--data-root", str(folder / f"data-{driver}")),
            *("--exec-root", str(folder / "exec")),
            *("--pidfile", str(folder / "dockerd.pid")),
            *("--storage-driver", driver),
            # No bridge, no firewall rules: steps use this machine's network.
            *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
        ]
        with run_program(command, log) as process:
            client = docker.DockerClient(base_url=url, version="1.41", timeout=300)

            def answers(client: Any = client, process: Any = process) -> bool:
                if process.poll() is not None:
                    return True
                try:
                    return bool(client.ping())
                except Exception:
                    return False

            until("the engine answers", answers)
            client.close()
            if process.poll() is None:
                yield url
                return
            problems.append(f"{driver}: {log.read_text()[-300:].strip()}")
    raise NoEngine("no engine starts here: " + " | ".join(problems))


def _make_base(docker_env: DockerEnvironment) -> None:
    try:
        debian = image_packages.debian()
    except debian_base.Unavailable as error:
        raise NoEngine(str(error)) from error
    layers.push(docker_env.bare, [debian], {})
    client = docker_env.client()
    with contextlib.closing(client):
        client.images.pull(docker_env.bare)
        context = docker_env.folder / "base"
        shutil.copytree(_ROOT / "packages/worker/src/edl_worker", context / "edl_worker")
        (context / "Dockerfile").write_text(
            f"FROM {docker_env.bare}\nCOPY edl_worker /usr/lib/python3/dist-packages/edl_worker\n"
        )
        client.images.build(path=str(context), tag=docker_env.base, rm=True)
        push(client, docker_env.base)


def push(client: Any, name: str) -> None:
    """Push an image, or fail with what the engine says."""
    for news in client.api.push(name, stream=True, decode=True):
        assert "error" not in news, news


if __name__ == "__main__":
    # For a developer's many runs: keep an environment, and name it to the tests.
    missing = missing_requirements()
    if missing:
        raise SystemExit(missing)
    for number in (signal.SIGTERM, signal.SIGINT):  # also where a shell lets them be ignored
        signal.signal(number, signal.default_int_handler)
    with open_environment() as kept:
        print(f'export EDL_DOCKER_ENVIRONMENT="{kept.engine} {kept.registry}"', flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
