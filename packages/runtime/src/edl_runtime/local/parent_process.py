"""A child process that ends with its parent, however the parent ends."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1

_BECOME = f"""
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(command[0], command)
"""
"""The code of a process that ends with its parent and becomes another program."""


def end_with_parent() -> None:
    """End this process with its parent, which holds the other end of its standard input.

    On Linux the kernel ends it, even if it is frozen and could not read. Call it in a child that
    the parent's main thread has started: the end of that thread is what the kernel means.
    Standard input is empty afterwards.
    """
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        log.info("the parent process is gone")
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def ending_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command whose process the kernel of Linux ends with this one.

    For programs that are not ours. The main thread of this process must start it.

    Args:
        command: path of the program, and its arguments.
    """
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
