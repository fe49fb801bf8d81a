"""The product as a user meets it: the installed ``edl`` command, real processes, real files."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordio
import recordio.example
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_runtime.identity.folder import IdentityFolder
from edl_testing import fork_server
from edl_testing.requirements import require
from tests import database_servers
from tests.database_servers import Server

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import digits  # noqa: E402  (the demo's own data)

ROLES = (b"edl_master", b"edl_master.parameter_server", b"edl_worker")
"""Modules that a job's processes run."""

COMMAND = str(Path(sys.executable).parent / "edl")
NO_EVALUATION_BEFORE_THE_END = ("--evaluation-steps", "1000000")
"""For tests that look at the last metrics alone."""

SHARED = (
    "tests/builder/",
    "tests/monitoring/test_prometheus.py",
    "tests/test_sql.py",
    "tests/test_sql_cuts.py",
    "tests/test_predictions.py",
    "tests/test_release.py",
    "tests/test_sync_training.py",
    "tests/test_recovery.py::test_a_job_on_a_trained_model",
)
"""Beginnings of the names of tests that share what takes long to make: an engine, wheels."""


PRODUCT = {
    *("edl", "chromium", "cluster", "docker_env", "mariadb", "servers", "wheels", "world"),
}
"""Fixtures of tests that run jobs, or need more of a machine than Python and git."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what only ``./dev test --all`` runs."""
    for item in items:
        fixtures: set[str] = set(getattr(item, "fixturenames", ()))
        if fixtures & PRODUCT and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.product)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let ``--dist loadscope`` run tests that share something in one process, others anywhere."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((shared for shared in SHARED if nodeid.startswith(shared)), nodeid)

    return Scheduling(config, log)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"edl {' '.join(self.args)} -> {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Edl:
    """Runs ``edl`` with a home of its own, and knows every process that its jobs started.

    Args:
        home: a folder.
        command: what runs commands that a test waits for.
    """

    def __init__(self, home: Path, command: Sequence[str] = (COMMAND,)) -> None:
        self.home = home
        self._command = command
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("EDL_")},
            "EDL_HOME": str(home),
            "NO_COLOR": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }

    def run(
        self, *args: str, cwd: Path = ROOT, timeout: float = 600, env: dict[str, str] | None = None
    ) -> Done:
        done = subprocess.run(
            [*self._command, *args],
            capture_output=True,
            text=True,
            env={**self.env, **(env or {})},
            cwd=cwd,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Done(args, done.returncode, done.stdout, done.stderr)

    def __call__(self, *args: str, **options: Any) -> Done:
        """Run, and it must succeed."""
        done = self.run(*args, **options)
        assert done.code == 0, str(done)
        return done

    def shell(self, script: str, cwd: Path, timeout: float = 600) -> Done:
        """Run commands as a person types them; each must succeed."""
        path = f"{Path(COMMAND).parent}:{self.env['PATH']}"
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            capture_output=True,
            text=True,
            env={**self.env, "PATH": path},
            cwd=cwd,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        result = Done((script,), done.returncode, done.stdout, done.stderr)
        assert result.code == 0, str(result)
        return result

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start without waiting."""
        return subprocess.Popen(
            [COMMAND, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )

    def job_dir(self, name: str) -> Path:
        return self.home / "jobs" / name

    def credentials(self, name: str, role: Role, number: int | None = None) -> Credentials:
        """Return the credentials of a process of the job, for a test that acts as that process."""
        identities = IdentityFolder(self.job_dir(name) / "identity", name)
        return Credentials(identities.file(role, number))

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self("status", name, "-o", "json").json
        return status

    def written_status(self, name: str) -> dict[str, Any]:
        """Return the status that the master wrote last, without starting or reviving anything."""
        try:
            found: dict[str, Any] = json.loads((self.job_dir(name) / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def processes(self) -> list[int]:
        """Living processes of any role that belong to this home's jobs."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            ours = f"EDL_HOME={self.home}\0".encode() in environment
            role = any(name in command for name in ROLES)
            if ours and role and state != "Z":
                found.append(int(entry.name))
        return found

    def workers(self, name: str) -> dict[int, int]:
        """Process id of each living worker of a job, by worker."""
        return {
            int(worker["id"]): int(worker["pid"])
            for worker in self.written_status(name).get("workers", ())
            if int(worker["pid"]) and worker["state"] not in ("gone", "lost")
        }


MakeEdl = Callable[[Path], Edl]
"""Gives the command a home."""


def readme_blocks() -> list[tuple[str, str]]:
    """Language and text of each block of code in the README."""
    text = (ROOT / "README.md").read_text()
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)


def eventually(
    condition: Callable[[], Any], what: str, timeout: float = 300, every: float = 0.1
) -> Any:
    """Wait until ``condition()`` is true, and give its value; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        time.sleep(every)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests away from the jobs and the settings of the user who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDL_HOME", str(tmp_path_factory.mktemp("edl-home")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@contextlib.contextmanager
def leaving_no_process(edl: Edl) -> Iterator[Edl]:
    """The command; afterwards no process of its jobs may be left."""
    try:
        yield edl
        eventually(lambda: not edl.processes(), "all processes of the jobs have ended")
    finally:
        for pid in edl.processes():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def forking_python() -> Iterator[str]:
    """An interpreter that runs a job's processes and checks of model files as forks.

    They begin with TensorFlow and all else imported.
    """
    modules = (fork_server.WORKER, fork_server.MASTER, fork_server.SERVER)
    imports = (*fork_server.WORKER_IMPORTS, *fork_server.MASTER_IMPORTS)
    with fork_server.forking_python(modules, imports) as interpreter:
        yield interpreter


@pytest.fixture(scope="session")
def forking_edl() -> Iterator[str]:
    """An interpreter that runs the command as a fork with what most commands import."""
    platforms = ("edl_docker.backend", "edl_kubernetes.backend")  # on which they look for jobs
    others = ("edl_convert.api", "edl_sql.statement_runner")
    imports = (*fork_server.COMMAND_IMPORTS, *platforms, *others)
    with fork_server.forking_python([fork_server.COMMAND], imports) as interpreter:
        yield interpreter


@pytest.fixture(scope="session")
def make_edl(forking_edl: str, forking_python: str) -> MakeEdl:
    """Return a function that gives a command a home; it and the processes of jobs are forks."""

    def make(home: Path) -> Edl:
        edl = Edl(home, (forking_edl, "-P", "-m", fork_server.COMMAND))
        edl.env["EDL_PYTHON"] = forking_python
        return edl

    return make


@pytest.fixture
def edl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Edl]:
    """The command. It and the processes of jobs are forks, but with the mark ``own_start``."""
    own_start = request.node.get_closest_marker("own_start")
    make: MakeEdl = Edl if own_start else request.getfixturevalue("make_edl")
    with leaving_no_process(make(tmp_path / "edl-home")) as edl:
        yield edl


@pytest.fixture(scope="session")
def plugin_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which ``edl`` sees the example packages of ``tests/plugins``, installed."""
    folder = tmp_path_factory.mktemp("plugins")
    packages = sorted(each.parent for each in (ROOT / "tests" / "plugins").glob("*/pyproject.toml"))
    install = (str(Path(COMMAND).parent / "uv"), "pip", "install", "--quiet", "--offline")
    options = ("--no-deps", "--no-build-isolation", "--python", sys.executable)
    subprocess.run([*install, *options, "--target", str(folder), *packages], check=True)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="session")
def digit_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred real digits: train/ and test/ RecordIO files of tf.Example."""
    place = tmp_path_factory.mktemp("digits")
    images, labels = digits.load()
    content = digits.records(images[:400], labels[:400])
    digits.write(place / "train", content[:320], 3, "digits")
    digits.write(place / "test", content[320:], 2, "digits")
    return place


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """PostgreSQL and MariaDB."""
    require(database_servers.missing())
    with contextlib.ExitStack() as stack:
        yield {
            "postgresql": stack.enter_context(database_servers.postgresql()),
            "mariadb": stack.enter_context(database_servers.mariadb()),
        }


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    """One after the other."""
    found: Server = servers[request.param]
    return found


def write_numbers(place: Path, total: int, files: int = 3) -> Path:
    """Records that carry their number, for the counting model, over uneven files."""
    place.mkdir()
    cuts = sorted(np.random.default_rng(total).choice(total, files - 1, replace=False))
    for part, (start, stop) in enumerate(zip([0, *cuts], [*cuts, total], strict=True)):
        with recordio.Writer(str(place / f"part-{part}.recordio")) as writer:
            for number in range(start, stop):
                writer.write(recordio.example.encode({"number": np.array([number])}))
    return place


@pytest.fixture
def numbered(tmp_path: Path) -> Callable[..., Path]:
    return functools.partial(write_numbers, tmp_path / "numbered")


class HeldTraining:
    """The counting models, which train and predict 10 records a second and worker until released.

    A job cannot be over, however fast the machine is, before the test has done to it what it wants.

    Attributes:
        zoo: their folder; ``--dataset-fn held.dataset_fn`` makes them wait.
    """

    def __init__(self, edl: Edl, place: Path) -> None:
        self.zoo = place / "held-zoo"
        self.zoo.mkdir()
        for source in ("model_zoo/counting.py", "model_zoo/counting_rows.py", "tests/zoo/held.py"):
            shutil.copy(ROOT / source, self.zoo)
        self._file = place / "held"
        self.hold()
        edl.env["EDL_TEST_HELD"] = str(self._file)

    def hold(self) -> None:
        """Hold whatever trains or predicts from now on."""
        self._file.touch()

    def release(self) -> None:
        """Train as fast as can be from now on."""
        self._file.unlink()


@pytest.fixture
def held(edl: Edl, tmp_path: Path) -> HeldTraining:
    return HeldTraining(edl, tmp_path)


def read_all(place: Path | str) -> list[bytes]:
    """Every record of a file or of the files of a directory, in order."""
    return [
        record
        for uri in recordio.expand(str(place))
        for record in recordio.open_source(uri).read(0, recordio.open_source(uri).count())
    ]
