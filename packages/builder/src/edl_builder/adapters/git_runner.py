"""Runs git within limits that hold while it runs."""

from __future__ import annotations

import io
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from edl_builder.core.archive import too_large
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.ports import Cancellation, WriteLine

_POLL_S = 0.5
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
        cancellation: ends a command.
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
        """Run a command to its end, and to that of its children.

        Returns:
            What ``consume`` makes of its output.

        Raises:
            BuilderError: SOURCE if git fails or takes too long, LIMIT, or CANCELLED.
        """
        where = f"git {command[-1][:80]}"
        self._stop.check()
        with subprocess.Popen(
            [*_with_limits(self._most), *command],
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                output = _Output(process, self._checks(where))
                # Closes the output as well.
                with io.BufferedReader(output, _CHUNK) as buffered:
                    found = consume(buffered)
                    output.finish()
            finally:
                # All that git has started is in its group. The group's number cannot be another's
                # yet: git itself is not reaped.
                os.killpg(process.pid, signal.SIGKILL)
        if _nbytes(self._folder) > self._most:
            raise too_large(self._most, "repository")
        if process.returncode:
            lines = output.messages.decode("utf-8", "replace").splitlines()[-_LINES:]
            for line in lines:
                self._on_line(line)
            raise BuilderError(
                Reason.SOURCE,
                f"git could not fetch the zoo: {lines[-1] if lines else 'no message'}",
                where=where,
                remedy="Check the URL, the ref, the folder and the credential's name.",
                detail="\n".join(lines),
            )
        return found

    def _checks(self, where: str) -> Callable[[], None]:
        """What is called again and again while a command runs, and raises when it is to end."""
        deadline = time.monotonic() + self._longest_s
        next_look = 0.0

        def check() -> None:
            nonlocal next_look
            self._stop.check()
            now = time.monotonic()
            if now > deadline:
                raise BuilderError(
                    Reason.SOURCE,
                    f"git did not finish within {self._longest_s:.0f} s",
                    where=where,
                    remedy="Try again; a large repository is better sent as a folder of its own.",
                )
            if now >= next_look:
                next_look = now + _POLL_S
                if _nbytes(self._folder) > self._most:
                    raise too_large(self._most, "repository")

        return check


class _Output(io.RawIOBase):
    """The output of a process. Its reader also gathers the messages and checks the limits.

    One thread waits for all of them, so none is waited for longer than the limits allow: a child of
    the process may keep its pipes open when the process itself has ended.

    Args:
        process: its output and messages are pipes.
        check: called again and again; raises when the process is to end.
    """

    def __init__(self, process: subprocess.Popen[bytes], check: Callable[[], None]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._check = check
        self._output = process.stdout.fileno()
        self._exit = os.pidfd_open(process.pid)
        self._open = selectors.DefaultSelector()
        for each in (self._output, process.stderr.fileno(), self._exit):
            self._open.register(each, selectors.EVENT_READ)
        self.messages = b""
        """The newest, however many there are: a server may send without end."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = b""
        while not found and self._output in self._open.get_map():
            found = self._take(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def finish(self) -> None:
        """Wait for the end of the process, its output and its messages."""
        while self._open.get_map():
            self._take(_CHUNK)

    def _take(self, most: int) -> bytes:
        """Return the next bytes of the output; none if something else arrives or time passes."""
        self._check()
        found = b""
        for key, _ in self._open.select(_POLL_S):
            piece = b"" if key.fd == self._exit else os.read(key.fd, most)
            if not piece:
                self._open.unregister(key.fd)
            elif key.fd == self._output:
                found = piece
            else:
                self.messages = (self.messages + piece)[-_TAIL_NBYTES:]
        return found

    def close(self) -> None:
        if not self.closed:
            self._open.close()
            os.close(self._exit)
        super().close()


def _with_limits(most: int) -> list[str]:
    """Return the command with limits on the size of its files and on its memory."""
    blocks = most // 512 + 2
    limits = f"ulimit -f {blocks} && ulimit -v {(most + _MEMORY_NBYTES) // 1024}"
    return ["/bin/sh", "-c", f'{limits} && exec "$@"', "git"]


def _nbytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total
