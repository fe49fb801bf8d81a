"""The stacks of all threads of this process, as text."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
import threading

MAX_CHARACTERS = 60_000
"""A worker has about a dozen Python threads; TensorFlow's own threads do not show."""


def format_stacks() -> str:
    """Return the stacks of all threads by name, the most recent call first."""
    # faulthandler writes to a descriptor and reads the frames without running Python code in the
    # threads, so it shows a thread that holds a lock forever, too.
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        text = file.read().decode(errors="replace")
    for thread in threading.enumerate():
        if thread.ident is not None:
            text = text.replace(f"0x{thread.ident:016x}", f"{thread.name}", 1)
    return text[:MAX_CHARACTERS]


def log_stacks(text: str) -> None:
    """Write stacks to this worker's log."""
    print("the master asks for the stacks of this worker:\n" + text, file=sys.stderr, flush=True)
