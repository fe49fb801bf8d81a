"""Runs git within limits that hold while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from edl_builder.core.archive import too_large
from edl_builder.core.names import BuilderError, Reason
from edl_builder.core.ports import Cancellation, WriteLine

_LOOK_S = 0.5
_LINES = 20
_TAIL_NBYTES = 16 << 10
_CHUNK = 1 << 16
_MEMORY_NBYTES = 2 << 30
"""Address space of git besides the repository itself: libraries, windows, one large object."""


def _read_text(output: IO[bytes]) -> str:
    return output.read(_TAIL_NBYTES).decode("utf-8", "replace")


class GitRunner:
    """Runs git, and ends it when it is to stop or takes too much room, memory or time.

    Args:
        environment: of git; nothing else is passed on.
        folder: whose size is watched.
        most: bytes of the folder, and of each file that git writes.
        longest_s: how long one command may take.
        on_line: gets the last lines of a command that fails.
        cancellation: ends a command at once.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        most: int,
        longest_s: float,
        on_line: WriteLine,
        cancellation: Cancellation,
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._most = most
        self._longest_s = longest_s
        self._on_line = on_line
        self._stop = cancellation

    def __call__(
        self, command: Sequence[str], consume: Callable[[IO[bytes]], str] = _read_text
    ) -> str:
        """Run a command to its end.

        Returns:
            What ``consume`` makes of its output.

        Raises:
            BuilderError: SOURCE if git fails or takes too long, LIMIT, or CANCELLED.
        """
        self._stop.check()
        process = subprocess.Popen(
            [*_limited(self._most), *command],
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        over = threading.Event()
        too_much, too_long = threading.Event(), threading.Event()
        deadline = time.monotonic() + self._longest_s

        def watch() -> None:
            while not over.wait(_LOOK_S):
                if time.monotonic() > deadline:
                    too_long.set()
                    _end(process)
                    return
                if _nbytes(self._folder) > self._most:
                    too_much.set()
                    _end(process)
                    return

        errors = _Tail(process.stderr)
        watcher = threading.Thread(target=watch, name="git-limits", daemon=True)
        watcher.start()
        unregister = self._stop.on_cancel(lambda: _end(process))
        try:
            # Needs no deadline: the watcher ends the process, and with it the output.
            output = consume(process.stdout)
            process.wait()
        finally:
            unregister()
            over.set()
            watcher.join()
            _end(process)
            process.wait()
            process.stdout.close()
            lines = errors.close()
        self._stop.check()
        if too_long.is_set():
            raise BuilderError(
                Reason.SOURCE,
                f"git did not finish within {self._longest_s:.0f} s",
                where=f"git {command[-1][:80]}",
                remedy="Try again; a large repository is better sent as a folder of its own.",
            )
        if too_much.is_set() or _nbytes(self._folder) > self._most:
            raise too_large(self._most, "repository")
        if process.returncode:
            for line in lines:
                self._on_line(line)
            raise BuilderError(
                Reason.SOURCE,
                f"git could not fetch the zoo: {lines[-1] if lines else 'no message'}",
                where=f"git {command[-1][:80]}",
                remedy="Check the URL, the ref, the folder and the credential's name.",
                detail="\n".join(lines),
            )
        return output


class _Tail:
    """The last lines of a stream, however much it says: a server may send without end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._newest = b""
        self._thread = threading.Thread(target=self._read, name="git-errors", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := self._stream.read1(_CHUNK):  # type: ignore[attr-defined]  # pipes have it
            self._newest = (self._newest + chunk)[-_TAIL_NBYTES:]

    def close(self) -> list[str]:
        """Its last lines, once its writer has ended."""
        self._thread.join()
        self._stream.close()
        return self._newest.decode("utf-8", "replace").splitlines()[-_LINES:]


def _limited(most: int) -> list[str]:
    """Run a command so that no file becomes larger, nor its memory than it needs for that."""
    blocks = most // 512 + 2
    limits = f"ulimit -f {blocks} && ulimit -v {(most + _MEMORY_NBYTES) // 1024}"
    return ["/bin/sh", "-c", f'{limits} && exec "$@"', "git"]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        try:
            # The group is the process's own: git's children go with it.
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _nbytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total
