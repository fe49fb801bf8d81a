"""Parameter servers as processes of the master's machine, or of its container."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

_ARGUMENTS = ("-P", "-m", "edl_master.parameter_server", "--end-with-parent")

_END_S = 3.0
"""How long a server whose command log has ended may take to end."""


class ServerProcesses:
    """Processes that end with this one: each reads from a pipe that only the master holds.

    Args:
        python: their interpreter.
        count: how many.
        arguments: of ``python -m edl_master.parameter_server``, by number.
        environment: whole.
        log_dir: directory of ``server-N.log``.
        on_end: called with the number of a server that ended by itself, and how it ended.
        clean_up: called by ``close`` with the number of each server, once it has ended.
    """

    def __init__(
        self,
        python: str,
        count: int,
        arguments: Callable[[int], list[str]],
        environment: Mapping[str, str],
        log_dir: Path,
        on_end: Callable[[int, str], None],
        clean_up: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_end = on_end
        self._clean_up = clean_up
        self._closing = threading.Event()
        self._processes: list[subprocess.Popen[bytes]] = []
        log_dir.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            with (log_dir / f"server-{number}.log").open("ab") as output:
                process = subprocess.Popen(
                    [python, *_ARGUMENTS, *arguments(number)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            self._processes.append(process)
            watch = threading.Thread(
                target=self._watch, args=(number, process), name=f"server-{number}", daemon=True
            )
            watch.start()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process numbers of the servers, in their order."""
        return tuple(process.pid for process in self._processes)

    @property
    def pending(self) -> tuple[str, ...]:
        """Always empty: processes start at once, with no scheduler to wait for."""
        return ("",) * len(self._processes)

    def _watch(self, number: int, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if not self._closing.is_set():
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._on_end(number, f"ended by {how}")

    def close(self, within_s: float = _END_S) -> None:
        """End all of them; those that have not ended in time are killed."""
        self._closing.set()
        for process in self._processes:
            if within_s <= 0:
                process.kill()
            elif process.stdin is not None:
                process.stdin.close()
        for number, process in enumerate(self._processes):
            try:
                process.wait(max(within_s, 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._clean_up(number)
