"""Parameter servers as processes: they never outlive their master."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edl_master.adapters.server_processes import ServerProcesses

LONG_S = 200.0

MASTER = """
import os, sys, time
from pathlib import Path
from edl_master.adapters.server_processes import ServerProcesses

arguments = ["--master", "127.0.0.1:9", "--incarnation", "i"]
arguments += ["--server", "0", "--host", "127.0.0.1"]
place = Path(sys.argv[1])
servers = ServerProcesses(
    sys.executable, 1, lambda _: arguments, dict(os.environ), place, lambda *_: None
)
print(*servers.pids, flush=True)
time.sleep(600)
"""
"""Has one server, which waits for a master that never answers."""


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with a server, and the server's number."""
    command = [sys.executable, "-c", MASTER, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server = int(process.stdout.readline())
    log = tmp_path / "server-0.log"
    until(lambda: "listens on" in log.read_text(), "the server runs")
    yield process, server
    process.kill()
    process.wait()
    if is_alive(server):
        os.kill(server, signal.SIGKILL)


def test_what_a_killed_server_leaves_is_cleaned_up_after_its_end(tmp_path: Path) -> None:
    arguments = ["--master", "127.0.0.1:9", "--incarnation", "i", "--host", "127.0.0.1"]
    alive: list[bool] = []

    def clean_up(number: int) -> None:
        alive.append(is_alive(servers.pids[number]))

    servers = ServerProcesses(
        sys.executable,
        2,
        lambda number: [*arguments, "--server", str(number)],
        dict(os.environ),
        tmp_path,
        lambda *_: None,
        clean_up,
    )
    servers.close(0)
    assert alive == [False, False]


@pytest.mark.skipif(sys.platform != "linux", reason="others have the pipe alone")
@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
def test_a_server_ends_with_its_master(
    master: tuple[subprocess.Popen[str], int], frozen: bool
) -> None:
    process, server = master
    if frozen:
        os.kill(server, signal.SIGSTOP)
    assert is_alive(server)
    process.kill()
    until(lambda: not is_alive(server), "the server has ended")
