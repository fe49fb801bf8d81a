"""Checks whether this machine has everything that a job needs."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edl import settings
from edl.adapters.local.launcher import master_command, python
from edl.core.diagnostics import Diagnostic, DiagnosticGrade
from edl.core.options import Verb
from edl.core.platforms import PLATFORMS
from edl.core.problem import Problem
from edl.core.quantities import size
from edl.core.submission import HOST
from edl.core.versions import version_of
from edl_proto.errors import EdlError
from edl_runtime.local import job_directory

_IMPORT_S = 180.0
_MIN_FREE_BYTES = 2 * 10**9
_OLDEST = (3, 11)

# Runs in the interpreter of masters and workers, which may be another one.
_PROBE = """
import importlib.metadata as m, json, sys
found = {"python": sys.version.split()[0]}
own = ("edl-master", "edl-worker", "edl-proto", "edl-runtime", "edl-recordio")
for name in (*own, "numpy", "numba"):
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = None
try:
    import tensorflow, keras
    found["tensorflow"], found["keras"] = tensorflow.__version__, keras.__version__
except BaseException as error:
    found["tensorflow"], found["error"] = None, f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(found))
"""


def examine() -> Iterator[Diagnostic]:
    """Yield all findings, the quick ones first."""
    yield _python()
    yield from _packages()
    yield from _home()
    yield _cores()
    yield _port()
    yield from _extras()
    yield from _platforms()
    yield from _interpreter()


def _python() -> Diagnostic:
    text = f"Python {'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}"
    if sys.version_info[:2] < _OLDEST:
        return Diagnostic("python", DiagnosticGrade.MISSING, text, "Install Python 3.11 or later.")
    return Diagnostic("python", DiagnosticGrade.OK, text)


def _packages() -> Iterator[Diagnostic]:
    own = version_of("edl-client")
    for name in ("edl-client", "edl-proto", "edl-runtime", "edl-recordio"):
        version = version_of(name)
        if version is None:
            yield Diagnostic(name, DiagnosticGrade.MISSING, "not installed", f"pip install {name}")
        elif version != own:
            yield Diagnostic(
                name,
                DiagnosticGrade.MISSING,
                f"version {version} does not match edl-client {own}",
                f"pip install {name}=={own}",
            )
        else:
            yield Diagnostic(name, DiagnosticGrade.OK, version)


def _home() -> Iterator[Diagnostic]:
    home = job_directory.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home):
            pass
    except OSError as error:
        yield Diagnostic(
            "EDL_HOME",
            DiagnosticGrade.MISSING,
            f"{home} cannot be written: {error.strerror}",
            "Set EDL_HOME to a folder that you may write to.",
        )
        return
    yield Diagnostic("EDL_HOME", DiagnosticGrade.OK, f"{home} can be written")
    free = shutil.disk_usage(home).free
    low = free < _MIN_FREE_BYTES
    yield Diagnostic(
        "disk",
        DiagnosticGrade.NOTE if low else DiagnosticGrade.OK,
        f"{size(free)} free at {home}",
        "Logs, checkpoints and models may not fit; free some space." if low else "",
    )


def _cores() -> Diagnostic:
    cores = len(os.sched_getaffinity(0))
    return Diagnostic("cores", DiagnosticGrade.OK, f"{cores} (workers share them)")


def _port() -> Diagnostic:
    try:
        with socket.create_server((HOST, 0)):
            return Diagnostic("ports", DiagnosticGrade.OK, f"processes can listen on {HOST}")
    except OSError as error:
        return Diagnostic(
            "ports",
            DiagnosticGrade.MISSING,
            f"processes cannot listen on {HOST}: {error.strerror}",
            "Masters and workers communicate over the loopback interface; enable it.",
        )


def _extras() -> Iterator[Diagnostic]:
    for name, what in (
        ("pyarrow", "edl data convert and edl predict need it for Parquet"),
        ("pillow", "edl data convert needs it to read images"),
    ):
        version = version_of(name)
        if version:
            yield Diagnostic(name, DiagnosticGrade.OK, version)
        else:
            yield Diagnostic(
                name,
                DiagnosticGrade.NOTE,
                f"not installed; {what}",
                "pip install edl-convert",
            )


def _platforms() -> Iterator[Diagnostic]:
    """Yield what each platform says about this machine; jobs can run without the optional ones."""
    try:
        given = settings.gather(Verb.TRAIN, {}, environ=os.environ, cwd=Path.cwd())
    except Problem as problem:
        what = f"{problem.what} ({problem.where})"
        yield Diagnostic("settings", DiagnosticGrade.NOTE, what, problem.remedy)
        given = {}
    options = {name: str(each.value) for name, each in given.items()}
    for name in PLATFORMS:
        try:
            platform = PLATFORMS[name]
        except Problem as problem:
            yield Diagnostic(name, DiagnosticGrade.NOTE, problem.what, problem.remedy)
        else:
            if platform.examine:
                yield from pkgutil.resolve_name(platform.examine)(options)


def _interpreter() -> Iterator[Diagnostic]:
    """Masters' and workers' interpreter, and what can be imported there."""
    command = python()
    found, problem = _probe(command)
    if found is None:
        yield Diagnostic(
            "workers",
            DiagnosticGrade.MISSING,
            f"{command} does not run: {problem}",
            "Set EDL_PYTHON to the Python that has edl-worker and TensorFlow.",
        )
        return
    yield Diagnostic("workers", DiagnosticGrade.OK, f"use {command} (Python {found['python']})")
    if custom := os.environ.get("EDL_MASTER_COMMAND"):
        yield Diagnostic("master", DiagnosticGrade.NOTE, f"EDL_MASTER_COMMAND is set: {custom}")
    needed = ["edl-worker"]
    try:
        if master_command()[0] == command:
            needed.insert(0, "edl-master")
    except EdlError as error:
        yield Diagnostic("master", DiagnosticGrade.MISSING, error.what, error.remedy)
    for name in needed:
        version = found.get(name)
        own = version_of("edl-client")
        if version is None:
            yield Diagnostic(
                name, DiagnosticGrade.MISSING, "not installed", f"{command} -m pip install {name}"
            )
        elif version != own:
            yield Diagnostic(
                name,
                DiagnosticGrade.MISSING,
                f"version {version} does not match edl-client {own}",
                f"{command} -m pip install {name}=={own}",
            )
        else:
            yield Diagnostic(name, DiagnosticGrade.OK, str(version))
    if found.get("tensorflow"):
        both = f"{found['tensorflow']}, Keras {found.get('keras')}"
        yield Diagnostic("tensorflow", DiagnosticGrade.OK, both)
    else:
        yield Diagnostic(
            "tensorflow",
            DiagnosticGrade.MISSING,
            f"cannot be imported: {found.get('error')}",
            f"{command} -m pip install 'edl-worker[cpu]'",
        )


def _probe(command: str) -> tuple[dict[str, str | None] | None, str]:
    home = os.path.expanduser("~")
    try:
        done = subprocess.run(
            [command, "-c", _PROBE],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            # As in a worker.
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"},
            timeout=_IMPORT_S,
            check=False,
            cwd=home if os.path.isdir(home) else None,
        )
        found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    except (ValueError, IndexError):
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return found, ""
