"""A job under test: started by the command, observed through its files only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from chaos.clock import Clock
from chaos.inputs import Inputs
from edl_runtime.local import supervision

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
        inputs: its model zoo and its data; the commands run in their folder.
        disk: where its checkpoints go, in a folder that may be a small disk of its own.
        clock: of all its processes; None if it is the machine's.

    Attributes:
        damaged: names of snapshots that were damaged.
        scaled: the number of workers that was acknowledged last, and later ones without an answer.
    """

    def __init__(
        self,
        home: Path,
        name: str,
        arguments: list[str],
        servers: int,
        inputs: Inputs,
        disk: Path,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.clock = clock
        self.disk = disk
        self.damaged: set[str] = set()
        self.scaled = [WORKERS]
        self._scaling = threading.Lock()
        self.servers = servers
        self.directory = home / "jobs" / name
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("EDL_")},
            "EDL_HOME": str(home),
            "NO_COLOR": "1",
            **(clock.environ if clock else {}),
        }
        self._client: subprocess.Popen[bytes] | None = None
        numbers = ("--num-workers", str(WORKERS), "--parameter-servers", str(servers))
        kept = ("--checkpoint-dir", str(disk), "--checkpoint-steps", "200")
        self.edl(*arguments, "--name", name, *numbers, *kept, "--detach")
        self.follow()

    def edl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.try_edl(*arguments)
        if done.returncode:
            raise RuntimeError(f"edl {' '.join(arguments[:2])}: {done.stdout}{done.stderr}")
        return done

    def try_edl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EDL, *arguments],
            capture_output=True,
            text=True,
            env=self._environ,
            cwd=self.inputs.folder,
            timeout=300,
            check=False,
        )

    def request_scale(self, workers: int) -> None:
        """Have a client ask for so many workers; one request after the other."""

        def ask() -> None:
            with self._scaling:
                done = self.try_edl("scale", self.name, "--workers", str(workers))
                if done.returncode == 0:
                    self.scaled = [workers]
                elif not self.is_over:
                    self.scaled.append(workers)  # it may have arrived all the same

        threading.Thread(target=ask, daemon=True).start()

    def last_scaled(self) -> list[int]:
        """Numbers of workers of which the job must want one."""
        with self._scaling:
            return self.scaled

    @property
    def has_recorded_stop(self) -> bool:
        """Whether a stop was acknowledged, or is about to be."""
        return "stop" in self._read("requests.json")

    def processes(self) -> list[int]:
        """Every process that belongs to the job, by its command line or its environment."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (
                    f"{self.directory}".encode() in (entry / "cmdline").read_bytes()
                    or f"EDL_JOB_DIR={self.directory}\0".encode()
                    in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
        return found

    def follow(self) -> None:
        """Have a client look at the job, if none does."""
        if self.client_pids():
            return
        self._client = subprocess.Popen(
            [EDL, "wait", self.name, "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            start_new_session=True,
        )

    def status(self) -> dict[str, Any]:
        """Return the status as the master wrote it last; the command would revive the job."""
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
