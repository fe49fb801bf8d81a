"""A builder as a process of this machine, for one call.

It listens on a socket in a folder that only the user can reach, as the builder has the user's
credentials for registries and the engine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from edl.plugins.files import tail
from edl.plugins.images import BuilderEndpoint, BuildRequest, custom_command, lacks_module, python
from edl.plugins.job_status import ERROR_LINES
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.unix_socket import MAX_PATH_BYTES
from edl_runtime.image_names import is_on_this_machine
from edl_runtime.local import job_directory
from edl_runtime.monitoring.log_lines import readable

_START_S = 60.0
_END_S = 20.0
_MAX_LOG_BYTES = 1 << 20
"""Bytes; the log of the next builder begins anew, and the one before it is kept."""


@contextlib.contextmanager
def running(
    request: BuildRequest,
    service: BuilderEndpoint,
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """Run a builder configured for this request, and give its address.

    One at a time on this machine: the next builder collects what is left in the engine,
    and another's half-built images must not be. It ends with this process, however that ends.

    Raises:
        EdlError: USAGE, or BUILDER_UNAVAILABLE with the end of its log.
    """
    folder = _own(job_directory.home() / "builder")
    log = folder / "builder.log"
    with (folder / "lock").open("w") as lock, _socket(folder) as socket:
        _take(lock, say)
        _rotate(log)
        command = _command(request, service, folder, socket, environ)
        process, address = _start(command, log, environ)
        try:
            yield address
        finally:
            _end(process)


def _own(folder: Path) -> Path:
    """Return the builder's folder, which only this user can open."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise EdlError(
            ErrorCode.USAGE,
            "the folder of the builder belongs to another user",
            where=str(folder),
            remedy="Set EDL_HOME to a folder of your own.",
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def _socket(folder: Path) -> Iterator[Path]:
    """Yield the builder's socket; in a folder for this call if the usual path is too long."""
    path = folder / "socket"
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="edl-builder-", dir="/tmp") as short:  # mode 0700
        yield Path(short) / "socket"


def _take(lock: IO[str], say: Callable[[str], None]) -> None:
    waits = False
    while True:  # a lock that is waited for in the kernel would not heed Ctrl-C
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waits:
                say("waiting for another build on this machine")
            waits = True
            time.sleep(0.1)
        except OSError as error:
            raise EdlError(
                ErrorCode.BUILDER_UNAVAILABLE,
                f"no builder can be started on this machine: no lock: {error.strerror}",
                where=lock.name,
                remedy="Set EDL_HOME to a folder on a disk of this machine, or name a build service"
                " with --builder.",
            ) from error


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def _command(
    request: BuildRequest,
    service: BuilderEndpoint,
    folder: Path,
    socket: Path,
    environ: Mapping[str, str],
) -> list[str]:
    registry = request.repository.partition("/")[0]
    custom = custom_command("EDL_BUILDER_COMMAND", environ)
    command = custom or [python(environ), "-P", "-m", "edl_builder"]
    command += ["--listen", f"unix:{socket}", "--until-stdin-closes"]
    command += ["--state-dir", str(folder / "state"), "--registry", registry]
    if is_on_this_machine(registry):
        # As the engine itself has it; the settings file may say otherwise.
        command += ["--plain-http", registry]
    for option, value in (
        ("--base-image", request.base_image),
        ("--engine", service.engine),
        ("--network", service.network),
        ("--config", service.config),
    ):
        if value:
            command += [option, value]
    return command


def _start(
    command: Sequence[str], log: Path, environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], str]:
    deadline = time.monotonic() + _START_S
    while True:
        begin = log.stat().st_size if log.exists() else 0
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    # A Ctrl-C is the client's; the builder ends when its standard input does.
                    start_new_session=True,
                    env=dict(environ),
                )
        except OSError as error:
            raise _unavailable(f"{command[0]}: {error.strerror}", log, "") from error
        try:
            answer = _answer(process, deadline)
            if "address" in answer:
                return process, str(answer["address"])
            _end(process)
            # One whose client was killed takes a moment to end.
            if answer.get("is_state_in_use") and time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            raise _unavailable(str(answer.get("error")), log, _log_since(log, begin))
        except (TimeoutError, ValueError) as error:
            _end(process)
            if lacks_module(command):
                raise _not_installed(log) from None
            raise _unavailable(str(error), log, _log_since(log, begin)) from None
        except BaseException:
            _end(process)
            raise


def _answer(process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    """Return what a builder prints once it listens, or why it cannot.

    Raises:
        TimeoutError, ValueError: it has not printed an answer.
    """
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise TimeoutError(f"the builder did not listen within {_START_S:.0f} s")
        part = os.read(process.stdout.fileno(), 4096)
        if not part:
            raise ValueError("the builder ended before it listened")
        line += part
    answer = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError("the builder printed neither an address nor an error")
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: left to it
            process.wait(_END_S)
    if process.stdout is not None:
        process.stdout.close()


def _log_since(log: Path, begin: int) -> str:
    """What was written to a log from this byte on."""
    try:
        return log.read_bytes()[begin:].decode(errors="replace")
    except OSError:
        return ""


def _not_installed(log: Path) -> EdlError:
    return EdlError(
        ErrorCode.BUILDER_UNAVAILABLE,
        "no builder can be started on this machine: edl_builder is not installed",
        where=str(log),
        remedy="pip install 'edl-client[docker]', or name a service with --builder HOST:PORT.",
    )


def _unavailable(what: str, log: Path, lines: str) -> EdlError:
    return EdlError(
        ErrorCode.BUILDER_UNAVAILABLE,
        f"no builder can be started on this machine: {what}",
        where=str(log),
        remedy="See the end of its log below, or name a build service with --builder.",
        detail="\n".join(lines.splitlines()[-ERROR_LINES:]) or readable(tail(log, ERROR_LINES)),
    )
