"""What the suite of job backends needs of each one."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import pytest
from conftest import Edl, eventually, install_example
from fake_engine import IMAGE, FakeEngine

from edl import entry_points
from edl.adapters.local.processes import local_processes
from edl.core.job_status import JobState
from edl.core.options import BY_NAME, Given, Verb
from edl.core.options.value_types import Choice
from edl.core.platforms import PLATFORMS
from edl.core.submission import Submission, build
from edl.ports.job_backend import JobBackend
from edl_docker.backend import local_containers
from edl_runtime.local import job_directory


@dataclass
class Harness:
    """The access to an adapter that the suite needs.

    Attributes:
        make: a new backend, as another process of the same user would make one.
        flags: options that a job of this backend needs besides the usual ones.
    """

    edl: Edl
    monkeypatch: pytest.MonkeyPatch
    make: Callable[[], JobBackend]
    flags: dict[str, str]

    @property
    def data(self) -> str:
        return str(self.edl.place / "data" / "*.recordio")

    def play(self, part: str) -> None:
        """Choose the scenario that the fake master plays."""
        self.monkeypatch.setenv("EDL_SCENARIO", part)

    def job(self, name: str, **flags: Any) -> Submission:
        """A checked submission."""
        given = {
            "model_zoo": str(self.edl.place / "zoo"),
            "model_def": "mine",
            "data": self.data,
            "output": str(self.edl.place / "results" / "out"),
            "name": name,
            **self.flags,
            **flags,
        }
        job = build(
            Verb.TRAIN,
            {key: Given(value, "--" + key.replace("_", "-")) for key, value in given.items()},
            cwd=str(self.edl.place),
            environ=os.environ,
        )
        return self.make().placement.resolve(job, os.environ)

    def kill_master(self, name: str) -> None:
        record = json.loads((self.edl.job_dir(name) / job_directory.MASTER).read_bytes())
        os.kill(record["pid"], signal.SIGKILL)


@contextmanager
def fresh_entry_points() -> Iterator[None]:
    """Entry points and the values of --platform as of now, and as before afterwards."""
    platform = BY_NAME["platform"]
    usual = platform.kind
    entry_points.forget()
    object.__setattr__(platform, "kind", Choice(tuple(PLATFORMS)))
    try:
        yield
    finally:
        object.__setattr__(platform, "kind", usual)
        entry_points.forget()


@contextmanager
def open_harness(kind: str, tidy: Edl, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """The harness of an adapter, whose master plays an endless job."""
    for name, value in tidy.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", tidy.python)
    (tidy.place / "results").mkdir()
    with ExitStack() as opened:
        if kind == "processes":
            made = Harness(tidy, monkeypatch, local_processes, {})
        elif kind == "plug-in":
            for folder in install_example(tidy.place / "installed").split(os.pathsep):
                monkeypatch.syspath_prepend(folder)
            opened.enter_context(fresh_entry_points())
            nice_jobs = resolve_name("edl_example.backend:nice_jobs")
            made = Harness(tidy, monkeypatch, nice_jobs, {"platform": "nice"})
        else:
            engine = opened.enter_context(FakeEngine(tidy.master))
            flags = {"platform": "docker", "engine": engine.url, "image": IMAGE}
            made = Harness(tidy, monkeypatch, local_containers, flags)
        made.play("endless")
        yield made


def running(backend: JobBackend, name: str) -> bool:
    snapshot = backend.status(name)
    return snapshot.answered and snapshot.status.state is JobState.RUNNING


def over(backend: JobBackend, name: str) -> bool:
    """Whether the job is over, and recorded as such."""
    return backend.status(name).is_over and backend.status(name, ask=False).is_over


def end(backend: JobBackend, name: str) -> None:
    backend.stop(name, "the test is over")
    eventually(lambda: over(backend, name), "the job is over")
    backend.finalize(name, backend.status(name).status)


class Killed(BaseException):
    """Stands for SIGKILL."""


def die(*_: object, **__: object) -> None:
    raise Killed
