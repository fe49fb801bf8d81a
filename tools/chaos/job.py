"""A job under test: started by the command, observed through its files only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from edl_proto.local import supervision

ROOT = Path(__file__).resolve().parent.parent.parent
EDL = str(Path(sys.executable).parent / "edl")
WORKERS = 2


class Job:
    """One job, started by the command and left to itself.

    Args:
        home: its ``EDL_HOME``.
        name: of the job.
        arguments: of the command.
        servers: how many parameter servers it has.
    """

    def __init__(self, home: Path, name: str, arguments: list[str], servers: int) -> None:
        self.name = name
        self.servers = servers
        self.directory = home / "jobs" / name
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("EDL_")},
            "EDL_HOME": str(home),
            "NO_COLOR": "1",
        }
        self._client: subprocess.Popen[bytes] | None = None
        numbers = ("--num-workers", str(WORKERS), "--parameter-servers", str(servers))
        self.edl(*arguments, "--name", name, *numbers, "--detach")
        self.follow()

    def edl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [EDL, *arguments],
            capture_output=True,
            text=True,
            env=self._environ,
            cwd=ROOT,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"edl {' '.join(arguments[:2])}: {done.stdout}{done.stderr}")
        return done

    def follow(self) -> None:
        """Have a client look at the job."""
        self._client = subprocess.Popen(
            [EDL, "wait", self.name, "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            start_new_session=True,
        )

    def status(self) -> dict[str, Any]:
        """As the master wrote it last; asking by the command would revive the job."""
        return self._read("status.json")

    @property
    def is_over(self) -> bool:
        return supervision.is_over(self.directory)

    @property
    def has_begun(self) -> bool:
        """Whether there is something to lose: faults before that only try its start again."""
        return int(self.status().get("progress", {}).get("records_done", 0)) > 0

    def client_pids(self) -> list[int]:
        living = self._client is not None and self._client.poll() is None
        return [self._client.pid] if living and self._client else []

    def worker_pids(self, worker: int | None = None) -> list[int]:
        """Instances of one worker, or of all."""
        pattern = "*.json" if worker is None else f"worker-{worker}-*.json"
        instances = sorted((self.directory / "instances").glob(pattern))
        pids = [self._read(f"instances/{one.name}").get("pid") for one in instances]
        return [pid for pid in pids if pid]

    def server_pids(self, server: int) -> list[int]:
        servers = self.status().get("servers", [])
        pids = [one["pid"] for one in servers if one["id"] == server]
        # A status may be of a moment ago, and the number another process's by now.
        return [pid for pid in pids if _runs(pid, "edl_master.parameter_server")]

    def master_pids(self) -> list[int]:
        return self._own(self._read("master.json").get("pid"))

    def supervisor_pids(self) -> list[int]:
        return self._own(supervision.supervisor_pid(self.directory))

    def close(self) -> None:
        """End everything of it."""
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            if not self.is_over:
                self.edl("stop", self.name, "--now")
        if self._client is not None:
            self._client.kill()
            self._client.wait()

    def _own(self, pid: int | None) -> list[int]:
        """Only while the number is still of a process of this job."""
        return [pid] if pid and _runs(pid, f"jobs/{self.name}") else []

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.directory / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _runs(pid: int, words: str) -> bool:
    """Whether a process with these words in its command line has that number."""
    try:
        return words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
