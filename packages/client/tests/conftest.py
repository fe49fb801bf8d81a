"""The command run for real: a process for each command, with a home of its own.

Commands that a test waits for (``Edl.run``), and the supervisors and masters that they start, are
forks of a process that has imported edl: the imports are most of a short command's work. Those that
a test starts, signals or gives a terminal begin as users' do.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import recordio
from edl.__main__ import run
from edl_testing import fork_server
from edl_testing.command import Done, assert_refused
from edl_testing.waiting import eventually as eventually

# A machine that is busy makes an example slow, not wrong.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")

TESTS = Path(__file__).parent
PASSED_ON = frozenset(("cwd", "env", "umask"))
"""The options of Popen that hold for a fork, too."""

Attempt = Callable[..., Done]

MODEL = """
model = object()

def dataset_fn(dataset, mode): pass
def loss(labels, predictions): pass
def optimizer(lr=0.1): pass
"""


@dataclass
class Edl:
    """Runs ``python -m edl``; the master is the stand-in.

    Attributes:
        place: the folder of its home.
        part: which scenario the stand-in plays.
        extra: more variables of its environment.
        python: runs the commands that are waited for, and masters.
    """

    place: Path
    part: str = "quick"
    extra: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable

    @property
    def home(self) -> Path:
        return self.place / "edl-home"

    @property
    def env(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDL_")},
            "EDL_HOME": str(self.home),
            "HOME": str(self.place),
            "XDG_CONFIG_HOME": str(self.place / "config"),
            "EDL_MASTER_COMMAND": shlex.join(self.master),
            "EDL_SCENARIO": self.part,
            **self.extra,
        }

    @property
    def master(self) -> tuple[str, ...]:
        return (self.python, "-m", fork_server.FAKE_JOB)

    def start(
        self, *args: str, python: str = sys.executable, **options: Any
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [python, "-m", "edl", *args],
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "env": self.env,
                "cwd": self.place,
                **options,
            },
        )

    def run(self, *args: str, timeout: float = 200, **options: Any) -> Done:
        python = self.python if options.keys() <= PASSED_ON else sys.executable
        child = self.start(*args, python=python, **options)
        try:
            out, err = child.communicate(timeout=timeout)
        except BaseException:
            child.kill()
            raise
        return Done(args, child.returncode, out, err)

    def __call__(self, *args: str, **options: Any) -> Done:
        """Run, and it must succeed."""
        done = self.run(*args, **options)
        assert done.code == 0, str(done)
        return done

    def job(self, *more: str) -> tuple[str, ...]:
        """A training job that nothing is wrong with."""
        return (
            *("train", "--model-zoo", str(self.place / "zoo"), "--model-def", "mine"),
            *("--data", str(self.place / "data" / "*.recordio")),
            *("--output", str(self.place / "out"), *more),
        )

    def job_dir(self, name: str) -> Path:
        return self.home / "jobs" / name

    def begin(self, name: str, *more: str) -> None:
        """Start a job that goes on until it is stopped, and wait until it runs."""
        self.part = "endless"
        self(*self.job("--name", name, "--detach", *more))
        written = self.job_dir(name) / "status.json"
        eventually(lambda: written.exists() and "RUNNING" in written.read_text(), "the job runs")

    def processes(self) -> list[int]:
        """Living processes that belong to this home, but the test itself."""
        found = []
        mark = f"EDL_HOME={self.home}\0".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


EXAMPLE = TESTS / "plugins" / "edl-example"


def write_distribution(folder: Path, name: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Write the metadata of an installed distribution of version 1.0."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{each} = {target}" for each, target in entries.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def install_example(folder: Path) -> str:
    """Install the example of a package that extends edl; returns the paths of Python for it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    write_distribution(folder, "edl_example", project["entry-points"])
    return os.pathsep.join((str(folder), str(EXAMPLE)))


@pytest.fixture
def example(edl: Edl) -> Edl:
    """The command, with the example of a package that extends it."""
    edl.extra["PYTHONPATH"] = install_example(edl.place / "installed")
    return edl


def stand_in_for_check(place: Path, **answer: Any) -> str:
    """An interpreter whose ``edl_worker check`` gives this answer, for EDL_PYTHON."""
    script = place / "python"
    script.write_text(f"#!/bin/sh\necho '{json.dumps({'errors': [], **answer})}'\n")
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="session")
def forking_edl() -> Iterator[str]:
    """An interpreter that runs the command as a fork with edl imported."""
    modules = (fork_server.COMMAND, *fork_server.BEHIND_COMMANDS)
    imports = (*fork_server.COMMAND_IMPORTS, *fork_server.BEHIND_COMMANDS, "docker")
    with fork_server.forking_python(modules, imports, is_executable=True) as interpreter:
        yield interpreter


@pytest.fixture
def edl(tmp_path: Path, forking_edl: str) -> Iterator[Edl]:
    """The command, with a zoo, some data and an empty home; it must leave no process."""
    command = Edl(tmp_path, python=forking_edl)
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "mine.py").write_text(MODEL)
    (tmp_path / "data").mkdir()
    with recordio.Writer(str(tmp_path / "data" / "a.recordio")) as writer:
        for number in range(10):
            writer.write(str(number).encode())
    yield command
    left = command.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def attempt(
    edl: Edl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Attempt:
    """Runs edl in this process, with options changed (or left out, by None) from a good job."""
    for name in [name for name in os.environ if name.startswith("EDL_")]:
        monkeypatch.delenv(name)
    for name, value in edl.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EDL_PYTHON", stand_in_for_check(edl.place))
    monkeypatch.chdir(edl.place)

    def call(*args: str, **changed: str | None) -> Done:
        if not args:
            options = dict(zip(edl.job()[1::2], edl.job()[2::2], strict=True))
            for name, value in changed.items():
                flag = "--" + name.replace("_", "-")
                options.pop(flag, None)
                if value is not None:
                    options[flag] = value
            args = ("train", *(part for pair in options.items() for part in pair))
        capsys.readouterr()
        code = run(args)
        out, err = capsys.readouterr()
        return Done(args, code, out, err)

    return call


def assert_told(done: Done, code: int, *words: str) -> None:
    """The failure has its code, says these words and what to do, and nothing was started."""
    assert_refused(done, code, *words)
    assert not Path(os.environ["EDL_HOME"]).exists(), "something was written"


@pytest.fixture
def tidy(edl: Edl) -> Iterator[Edl]:
    """The command ``edl``, of whose jobs no process may be left when the test is over."""
    yield edl
    eventually(lambda: not edl.processes(), "all processes of the jobs have ended")
