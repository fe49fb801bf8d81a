"""One node's namespaces (network, mounts, processes, host name, IPC), and what runs in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

INIT = Path(__file__).with_name("sandbox_init.py")
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc")
NICENESS = 10
"""A cluster on a small machine leaves the tests their turn."""

GO = ("GOGC=400",)
"""Programs of Go search for garbage less often: it was a fifth of what an import computed."""


def wait_until(met: Callable[[], bool], what: str, seconds: float = 600) -> None:
    """Raise ``TimeoutError`` naming ``what`` if the condition stays false."""
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


def ending_with_us(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that is killed when this process ends, however it ends."""
    return ("setpriv", "--pdeathsig", "KILL", "--", *command)


def child_of(pid: int) -> int | None:
    """The only child of a process, if it has one yet."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


@dataclass
class Sandbox:
    """A set of namespaces. All process ids are those of this machine, so signals reach them."""

    logs: Path
    outer: int
    """The process that made the namespaces; its death ends them."""
    init: int
    """The first process in the namespaces; its death ends all others in there."""
    processes: dict[str, int] = field(default_factory=dict)
    niceness: int = NICENESS
    """Of all that is started, pods included."""

    @classmethod
    def create(
        cls, name: str, logs: Path, niceness: int = NICENESS, *, stays: bool = False
    ) -> Sandbox:
        """Make the namespaces; they end with this process, unless they are to stay."""
        logs.mkdir(parents=True, exist_ok=True)
        command = ("unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc")
        command = (*command, "--propagation", "private", sys.executable, str(INIT))
        outer = _background(command if stays else ending_with_us(command), logs / f"{name}.log")
        wait_until(lambda: child_of(outer) is not None, "the first process of the namespaces")
        init = child_of(outer)
        assert init is not None
        wait_until(lambda: b"ready" in (logs / f"{name}.log").read_bytes(), "the namespaces")
        return cls(logs, outer, init, niceness=niceness)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Sandbox:
        given = Path(state["logs"]), state["outer"], state["init"], dict(state["processes"])
        return cls(*given, niceness=state["niceness"])

    def state(self) -> dict[str, Any]:
        """Return what ``from_state`` needs, as JSON values."""
        identity = {"logs": str(self.logs), "outer": self.outer, "init": self.init}
        return {**identity, "processes": self.processes, "niceness": self.niceness}

    def run(self, *command: str, stdin: str | None = None) -> str:
        """Return the standard output of a command in the namespaces; or raise RuntimeError."""
        return _output(self._enter(*command), stdin)

    def stream(self, write: Callable[[IO[bytes]], None], *command: str) -> None:
        """Run a command that reads what ``write`` writes; raises ``RuntimeError`` if it fails."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self._enter(*command), stdin=subprocess.PIPE, stdout=output, stderr=output
            )
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                write(process.stdin)
            if process.wait():
                output.seek(0)
                said = output.read().decode(errors="replace")
                raise RuntimeError(f"{command} ended with {process.returncode}: {said}")

    def run_on_network(self, *command: str) -> None:
        """Run a command in the network namespace alone: process ids are those of this machine."""
        _output(("nsenter", "--target", str(self.init), "--net", "--", *command))

    def script(self, text: str) -> None:
        """Run lines of shell; the first that fails ends them."""
        self.run("sh", "-euc", text)

    def start(self, name: str, *command: str) -> None:
        """Start a process that stays; its output goes into a log of this name."""
        entered = self._enter("nice", "-n", str(self.niceness), "env", *GO, *command)
        parent = _background(entered, self.logs / f"{name}.log")
        wait_until(lambda: child_of(parent) is not None, name)
        pid = child_of(parent)
        assert pid is not None
        self.processes[name] = pid

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name], number)

    def thaw(self, name: str) -> None:
        """Let a process go on that was stopped; so does the one that made it, which stops with it.

        A parent that stays stopped never reaps it, and the namespaces would not end.
        """
        pid = self.processes[name]
        for each in (pid, _parent(pid)):
            os.kill(each, signal.SIGCONT)

    def lives(self, name: str) -> bool:
        return _lives(self.processes[name])

    def log(self, name: str) -> str:
        """The output of a process since its last start."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """Kill a process that was started, and wait until its ports are free."""
        self.signal(name, signal.SIGKILL)
        wait_until(lambda: not _lives(self.processes[name]), f"the end of {name}")

    def end(self) -> None:
        """End every process in the namespaces; mounts and network go with them."""
        for pid in (self.init, self.outer):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            wait_until(lambda pid=pid: not _lives(pid), f"the end of process {pid}")

    def _enter(self, *command: str) -> tuple[str, ...]:
        return ("nsenter", "--target", str(self.init), *NAMESPACES, "--", *command)


def _output(command: Sequence[str], stdin: str | None = None) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _background(command: Sequence[str], log: Path) -> int:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process.pid


def _lives(pid: int) -> bool:
    """Whether any thread goes on: the first one may be a zombie while others hold the ports."""
    try:
        return any(_state(thread) not in "ZX" for thread in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
