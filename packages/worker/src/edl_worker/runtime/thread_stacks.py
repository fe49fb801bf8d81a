"""What every thread of this process does at the moment, as text."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
import threading

MOST_CHARACTERS = 60_000
"""A worker has some dozen threads; TensorFlow's own are not Python's and do not show."""


def of_all_threads() -> str:
    """The stacks of all threads, the most recent call first, each under its thread's name."""
    # faulthandler writes to a descriptor, and reads the frames without running any Python code
    # in the threads: also a thread that holds a lock for ever can be looked at.
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        text = file.read().decode(errors="replace")
    for thread in threading.enumerate():
        if thread.ident is not None:
            text = text.replace(f"0x{thread.ident:016x}", f"{thread.name}", 1)
    return text[:MOST_CHARACTERS]


def show(text: str) -> None:
    """Put stacks into this worker's log."""
    print("the master asks what this worker does:\n" + text, file=sys.stderr, flush=True)
