"""An interpreter for tests that runs some modules as forks of a process that has imported them.

    python -IS forked_python.py FOLDER MODULE,MODULE... PYTHON ARGUMENTS...

See ``fork_server``. It imports little, and of the standard library only: it starts with every fork.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
MAX_ANSWER_BYTES = 1000
START_S = 2.0
"""How long the start of a fork may take."""
READ_AT_START = ("PYTHON", "LD_", "KERAS_", "TF_")
"""How variables begin that an interpreter, the linker or TensorFlow reads when it starts."""
READ_LATER = (
    *("PYTHONUNBUFFERED", "TF_CPP_MIN_LOG_LEVEL"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
)
"""Of these, those that forks obey too, or need not: they write at once, and little."""


def main() -> None:
    """Run the command, as a fork if it is one of the server's modules that it runs."""
    folder, modules, python, *command = sys.argv[1:]
    arguments = command[1:] if command[:1] == ["-P"] else command
    module = "".join(arguments[1:2]) if arguments[:1] == ["-m"] else ""
    own_start = module not in modules.split(",") or _needs_own_start(f"{folder}/environ.json")
    request = "" if own_start else _describe(module, arguments[2:])
    if not request:
        os.execv(python, [python, *command])
    started = time.monotonic()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(f"{folder}/socket")
        socket.send_fds(server, [request.encode()], [0, 1, 2])
        fork = json.loads(server.recv(MAX_ANSWER_BYTES))["pid"]
        try:
            fork = os.pidfd_open(fork)
        except ProcessLookupError:
            pass  # it has ended already, and needs no signals
        else:
            for number in FORWARDED:
                signal.signal(number, lambda number, _: _forward(fork, number))
        status = json.loads(server.recv(MAX_ANSWER_BYTES))["status"]
    if status == -signal.SIGSEGV and time.monotonic() - started < START_S:
        # A fork of a process with threads may crash while it starts. If that was not the reason,
        # this crashes, too.
        os.execv(python, [python, *command])
    _end_as(status)


def _describe(module: str, arguments: list[str]) -> str:
    """Return what a fork takes over of this process; nothing if it cannot, as without a folder."""
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        for descriptor in range(3):
            os.fstat(descriptor)
        folder = os.getcwd()
    except OSError:
        return ""
    facts = {"environ": dict(os.environ), "cwd": folder, "umask": mask, "pid": os.getpid()}
    return json.dumps({"module": module, "arguments": arguments, **facts})


def _needs_own_start(servers_environ: str) -> bool:
    """Whether anything that is read at the start differs from what the server started with."""
    with open(servers_environ, encoding="utf-8") as file:
        before = json.load(file)
    changed = {
        name
        for name in {*before, *os.environ}
        if name.startswith(READ_AT_START) and before.get(name) != os.environ.get(name)
    }
    return bool(changed.difference(READ_LATER))


def _forward(fork: int, number: int) -> None:
    try:  # noqa: SIM105  (contextlib takes longer to import than all else)
        signal.pidfd_send_signal(fork, number)
    except ProcessLookupError:
        pass


def _end_as(status: int) -> None:
    """End as the fork has ended: with its exit code, or by its signal."""
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
