"""Looks at this machine: is everything there that a job needs?"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from edl.adapters import engine
from edl.adapters.launcher import master_command, python
from edl.core.health import Finding, Grade
from edl.core.quantities import size
from edl.core.submission import HOST
from edl_proto import jobdir
from edl_proto.errors import EdlError

_IMPORT_S = 180.0
_LEAST_FREE = 2 * 10**9
_OLDEST = (3, 11)

# Runs in the interpreter of masters and workers, which may be another one.
_PROBE = """
import importlib.metadata as m, json, sys
found = {"python": sys.version.split()[0]}
for name in ("edl-master", "edl-worker", "edl-proto", "edl-recordio", "numpy", "numba"):
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


def version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def examine() -> Iterator[Finding]:
    """All findings, the quick ones first."""
    yield _python()
    yield from _packages()
    yield from _home()
    yield _cores()
    yield _port()
    yield from _extras()
    yield _engine()
    yield from _interpreter()


def _python() -> Finding:
    text = f"Python {'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}"
    if sys.version_info[:2] < _OLDEST:
        return Finding("python", Grade.MISSING, text, "Install Python 3.11 or later.")
    return Finding("python", Grade.OK, text)


def _packages() -> Iterator[Finding]:
    own = version_of("edl-client")
    for name in ("edl-client", "edl-proto", "edl-recordio"):
        version = version_of(name)
        if version is None:
            yield Finding(name, Grade.MISSING, "not installed", f"pip install {name}")
        elif version != own:
            yield Finding(
                name,
                Grade.MISSING,
                f"{version} beside edl-client {own}",
                f"pip install {name}=={own}",
            )
        else:
            yield Finding(name, Grade.OK, version)


def _home() -> Iterator[Finding]:
    home = jobdir.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home):
            pass
    except OSError as error:
        yield Finding(
            "EDL_HOME",
            Grade.MISSING,
            f"{home} cannot be written: {error.strerror}",
            "Set EDL_HOME to a folder that you may write to.",
        )
        return
    yield Finding("EDL_HOME", Grade.OK, f"{home} can be written")
    free = shutil.disk_usage(home).free
    low = free < _LEAST_FREE
    yield Finding(
        "disk",
        Grade.NOTE if low else Grade.OK,
        f"{size(free)} free at {home}",
        "Logs, checkpoints and models may not fit; free some space." if low else "",
    )


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    return Finding("cores", Grade.OK, f"{cores} (workers share them)")


def _port() -> Finding:
    try:
        with socket.create_server((HOST, 0)):
            return Finding("ports", Grade.OK, f"{HOST} can be listened on")
    except OSError as error:
        return Finding(
            "ports",
            Grade.MISSING,
            f"{HOST} cannot be listened on: {error.strerror}",
            "Masters and workers talk over the loopback interface; bring it up.",
        )


def _extras() -> Iterator[Finding]:
    for name, what in (("pyarrow", "Parquet"), ("pillow", "images")):
        version = version_of(name)
        if version:
            yield Finding(name, Grade.OK, version)
        else:
            yield Finding(
                name,
                Grade.NOTE,
                f"not installed; edl data convert reads no {what} without it",
                "pip install 'edl-client[convert]'",
            )


def _engine() -> Finding:
    """The container engine, which only ``--platform docker`` and images need."""
    subject = "containers"
    try:
        url = engine.engine_url(os.environ.get("EDL_ENGINE", ""))
        engine.check_engine(url)
    except EdlError as error:
        return Finding(
            subject,
            Grade.NOTE,
            f"{error.what} ({error.where}); --platform docker and edl zoo build need an engine",
            error.remedy,
        )
    return Finding(subject, Grade.OK, f"the engine at {url} answers")


def _interpreter() -> Iterator[Finding]:
    """Masters' and workers' interpreter, and what can be imported there."""
    command = python()
    found, problem = _probe(command)
    if found is None:
        yield Finding(
            "workers",
            Grade.MISSING,
            f"{command} does not run: {problem}",
            "Set EDL_PYTHON to the Python that has edl-worker and TensorFlow.",
        )
        return
    yield Finding("workers", Grade.OK, f"run with {command} (Python {found['python']})")
    if custom := os.environ.get("EDL_MASTER_COMMAND"):
        yield Finding("master", Grade.NOTE, f"EDL_MASTER_COMMAND is set: {custom}")
    for name in ("edl-master", "edl-worker"):
        if name == "edl-master" and master_command()[0] != command:
            continue
        version = found.get(name)
        own = version_of("edl-client")
        if version is None:
            yield Finding(name, Grade.MISSING, "not installed", f"{command} -m pip install {name}")
        elif version != own:
            yield Finding(
                name,
                Grade.MISSING,
                f"{version} beside edl-client {own}",
                f"{command} -m pip install {name}=={own}",
            )
        else:
            yield Finding(name, Grade.OK, str(version))
    if found.get("tensorflow"):
        both = f"{found['tensorflow']}, Keras {found.get('keras')}"
        yield Finding("tensorflow", Grade.OK, both)
    else:
        yield Finding(
            "tensorflow",
            Grade.MISSING,
            f"cannot be imported: {found.get('error')}",
            f"{command} -m pip install 'edl-worker[cpu]'",
        )


def _probe(command: str) -> tuple[dict[str, str | None] | None, str]:
    try:
        done = subprocess.run(
            [command, "-c", _PROBE],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            timeout=_IMPORT_S,
            check=False,
            cwd=Path.home() if Path.home().is_dir() else None,
        )
        found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    except (ValueError, IndexError):
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return found, ""
