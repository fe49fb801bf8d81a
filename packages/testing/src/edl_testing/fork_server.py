"""Processes for tests that begin with their modules imported: forks of one process.

Importing TensorFlow is most of a short job's work, and every worker and every check of a model file
does it anew. A fork server imports it once. The interpreter that tests give to jobs as
``EDL_PYTHON`` (``forked_python``) has the server fork for ``python -m edl_worker …``, and likewise
for masters and parameter servers, passes signals on, and ends as the fork does; whatever else it is
asked to run, the real interpreter runs.

A fork is a process like any other, with its own environment, working directory and output. If the
process in front of it is killed, the server kills the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import random
import re
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from edl_runtime.local import process_environment, process_identity

_PYTHON = sys.executable
_PR_SET_PDEATHSIG = 1
_MAX_REQUEST_BYTES = 1 << 20

WORKER = "edl_worker"
WORKER_IMPORTS = (
    "edl_worker.engines.tensorflow.startup:import_tensorflow",
    "edl_worker.engines.tensorflow.loading",
    "edl_worker.app",
    "edl_worker.tasks.task_runner",
    "edl_worker.tasks.job_check",
)
"""What every worker or check of a model file imports; the first one as they import it."""

MASTER = "edl_master"
SERVER = "edl_master.parameter_server"
MASTER_IMPORTS = (
    *("edl_master.app.startup", "edl_master.reporting.finished_job"),
    *("edl_master.parameter_server.app", "edl_master.core.parameters.kernels"),
    "edl_master.core.parameters.tables.row_kernels",
    *("edl_master.core.parameters.tables.index_kernels", "edl_testing.compiled_loops:call"),
    "edl_master.adapters.tensorboard",
)
"""What every master or parameter server imports and calls; the loops bring numba."""

COMMAND = "edl"
COMMAND_IMPORTS = (
    *("edl.cli.root", "edl.cli.commands", "edl.cli.status", "edl.cli.submit", "edl.app"),
    *("edl.adapters.local.jobs", "edl.adapters.local.processes"),
    *("edl.adapters.job_service_client", "edl.adapters.data_schema"),
)
"""What most commands import."""

FAKE_JOB = "edl_testing.fake_job"
BEHIND_COMMANDS = ("edl.adapters.local.supervisor", "edl_docker.job_container", FAKE_JOB)
"""The processes of a job on this machine whose master is the stand-in."""


@contextlib.contextmanager
def forking_python(
    modules: Sequence[str], imports: Sequence[str], *, is_executable: bool = False
) -> Iterator[str]:
    """Start a fork server that ends with the context; yields an interpreter that uses it.

    Args:
        modules: run as forks when the interpreter is asked to run one of them by ``-m``.
        imports: modules that the server imports before, and functions as ``MODULE:FUNCTION`` that
            it calls.
        is_executable: whether the forks take the interpreter for ``sys.executable``, so that what
            they start with that begins as a fork, too.
    """
    with tempfile.TemporaryDirectory(prefix="edl-forks-") as folder:
        interpreter = Path(folder, "python")
        environ = {**os.environ, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        Path(folder, "environ.json").write_text(json.dumps(environ))
        # Isolated and without site: it starts in a hundredth of a second.
        shim = f"{sys.executable} -IS {Path(__file__).with_name('forked_python.py')}"
        words = f"{shim} {folder} {','.join(modules)} {sys.executable}"
        interpreter.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        interpreter.chmod(0o755)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
            Path(folder, "log").open("wb") as log,
        ):
            # Already here: what connects while it imports waits.
            listener.bind(f"{folder}/socket")
            listener.listen(100)
            server = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", __name__, str(listener.fileno())),
                    str(interpreter) if is_executable else sys.executable,
                    *imports,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environ,
                cwd="/",
                start_new_session=True,
                pass_fds=[listener.fileno()],
            )
        with server:
            try:
                _wait_until_it_serves(f"{folder}/socket")
                yield str(interpreter)
            finally:
                server.kill()


def find_fork(pid: int) -> int:
    """Return the process behind an interpreter; a process of its own is its own answer.

    A test needs it to freeze a process, or to look at its sockets.
    """
    descriptors: list[Path] = []
    with contextlib.suppress(OSError):  # it is gone
        descriptors = list(Path(f"/proc/{pid}/fdinfo").iterdir())
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if found := re.search(r"^Pid:\s*([1-9]\d*)$", descriptor.read_text(), re.M):
                return int(found[1])
    return pid


def _wait_until_it_serves(path: str) -> None:
    """Wait for the imports: a job gives up a master that does not listen in half a minute."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(path)
        client.shutdown(socket.SHUT_WR)
        client.recv(1)  # the end of the connection


class ForkServer:
    """Forks on request, and reports how each fork ended.

    Args:
        listener: where requests come from.
        lifeline: a descriptor that can be read once the process that started the server has ended.
    """

    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self._listener = listener
        self._lifeline = lifeline
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(lifeline, selectors.EVENT_READ)
        self._clients: dict[int, tuple[int, socket.socket]] = {}
        """The process number and the client of each fork, by its pidfd."""

    def serve(self) -> None:
        """Serve until the process that started the server ends."""
        while True:
            for key, _ in self._selector.select():
                match key.fileobj:
                    case self._lifeline:
                        return
                    case self._listener:
                        client, _ = self._listener.accept()
                        self._selector.register(client, selectors.EVENT_READ)
                    case socket.socket() as client:
                        self._read(client)
                    case int() as pidfd:
                        self._report_end(pidfd)

    def _read(self, client: socket.socket) -> None:
        """Fork for a client that sends a request; end the fork of a client that is gone."""
        try:
            request, descriptors, _, _ = socket.recv_fds(client, _MAX_REQUEST_BYTES, 3)
        except OSError:
            request, descriptors = b"", []
        if not request:
            for pidfd, (_, its_client) in self._clients.items():
                if its_client is client:
                    process_identity.send(pidfd, signal.SIGKILL)
            self._selector.unregister(client)
            client.close()
            return
        pid = os.fork()
        if pid == 0:
            self._become(json.loads(request), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self._clients[pidfd] = (pid, client)
        self._selector.register(pidfd, selectors.EVENT_READ)
        _tell(client, {"pid": pid})

    def _report_end(self, pidfd: int) -> None:
        pid, client = self._clients.pop(pidfd)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _tell(client, {"status": os.waitstatus_to_exitcode(status)})

    def _become(self, request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
        """Turn this fork into the process that was asked for."""
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()
            self._selector.close()
            self._listener.close()
            os.close(self._lifeline)
            for pidfd, (_, client) in self._clients.items():
                os.close(pidfd)
                client.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            _run(request)
        except SystemExit as stop:
            sys.stdout.flush()
            os._exit(stop.code if isinstance(stop.code, int) else bool(stop.code))
        except BaseException:
            traceback.print_exc()
            sys.stdout.flush()
        finally:
            os._exit(1)


def _run(request: dict[str, Any]) -> None:
    module, environ, pid = request["module"], request["environ"], request["pid"]
    if module == WORKER:
        # The master knows the process that it started. What a fork starts is not that process.
        name = process_identity.instance_name(pid, process_identity.start_time(pid) or 0)
        environ = process_environment.change(environ, {"EDL_INSTANCE": name})
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    sys.argv = [module, *request["arguments"]]
    # A master that starts itself again does so as a process of its own.
    sys.orig_argv = [_PYTHON, "-P", "-m", *sys.argv]
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # else runpy warns that it runs a second time
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _tell(client: socket.socket, message: dict[str, int]) -> None:
    with contextlib.suppress(OSError):  # it is gone, and so will be its fork
        client.send(json.dumps(message).encode())


def main(descriptor: str, executable: str, *imports: str) -> None:
    """Import modules, and serve the socket behind a descriptor until standard input ends."""
    lifeline = os.dup(0)
    for text in imports:
        name, _, function = text.partition(":")
        imported = importlib.import_module(name)
        if function:
            getattr(imported, function)()
    sys.executable = executable
    ForkServer(socket.socket(fileno=int(descriptor)), lifeline).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
