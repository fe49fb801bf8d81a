"""How long it takes until a death is noticed and work continues: medians and worst of some kills.

Two workers on the counting model, one machine; one job without and one with two parameter servers.
``EDL_BENCH_KILLS`` is how often each is tried (20), ``EDL_BENCH_FAULTS`` which faults, by a part of
their names. Times of workers are until the master has taken the task back: it is the next to be
leased. Those of parameter servers are until a gradient is applied again.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import recordio
import recordio.example
from bench.measure import Measure
from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory

ROOT = Path(__file__).resolve().parent.parent
KILLS = int(os.environ.get("EDL_BENCH_KILLS", "20"))
FAULTS = os.environ.get("EDL_BENCH_FAULTS", "")
RECORDS = 50_000
EDL = str(Path(sys.executable).parent / "edl")
_DEADLINE_S = 240.0


class Running:
    """A job that runs for long enough.

    Args:
        place: for its files.
        servers: how many parameter servers it has.
    """

    def __init__(self, place: Path, servers: int) -> None:
        data = place / "numbers.recordio"
        with recordio.Writer(str(data)) as writer:
            for number in range(RECORDS):
                writer.write(recordio.example.encode({"number": np.array([number])}))
        self._environ = {**os.environ, "EDL_HOME": str(place / "home")}
        self.directory = place / "home" / "jobs" / "recovery"
        self._edl(
            *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting"),
            *("--params", f"size={RECORDS}", "--data", str(data), "--num-epochs", "100000"),
            *("--minibatch-size", "16", "--num-workers", "2", "--name", "recovery", "--detach"),
            *("--parameter-servers", str(servers), "--output", str(place / "model")),
            *("--strategy", "parameter-server"),
        )

    @cached_property
    def _peer(self) -> Peer:
        identities = IdentityFolder(self.directory / job_directory.IDENTITY, "recovery")
        return Credentials(identities.file(Role.CLIENT)).to(Role.MASTER)

    def _edl(self, *arguments: str) -> None:
        subprocess.run(
            [EDL, *arguments], env=self._environ, cwd=ROOT, check=True, capture_output=True
        )

    def close(self) -> None:
        self._edl("stop", "recovery", "--now")

    def status(self) -> job_pb2.JobStatus | None:
        try:
            with channels.connect(self.master()["address"], self._peer) as channel:
                job = job_pb2_grpc.JobStub(channel)
                found: job_pb2.JobStatus = job.GetStatus(job_pb2.GetStatusRequest(), timeout=2)
                return found
        except Exception:
            return None

    def master(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "master.json").read_bytes())
        return found

    def pid(self, worker: int) -> int:
        pods = sorted((self.directory / "instances").glob(f"worker-{worker}-*.json"))
        return int(json.loads(pods[-1].read_bytes())["pid"])

    def server_pid(self, server: int) -> int:
        status = json.loads((self.directory / "status.json").read_bytes())
        return int(status["servers"][server]["pid"])

    def event_after(self, kind: str, worker: int | None, at: float) -> float:
        """When this happened, to the worker if one is given, in seconds since the epoch; waits."""
        whom = None if worker is None else str(worker)

        def look() -> float | None:
            for line in (self.directory / "events.jsonl").read_text().splitlines():
                event = json.loads(line)
                told = datetime.fromisoformat(event["at"]).timestamp()
                right = event["kind"] == kind and event["facts"].get("worker") == whom
                if right and told >= at - 0.001:
                    return told
            return None

        return _until(look)

    def both_work(self) -> bool:
        status = self.status()
        return (
            status is not None
            and [w.state for w in status.workers].count("working") == 2
            and all(server.state == "serving" for server in status.servers)
        )

    def snapshots(self) -> int:
        """How many there have been."""
        names = [path.name for path in (self.directory / "snapshots").glob("recovery-*")]
        return max((int(name.rpartition("-")[2]) for name in names), default=0)

    def wait_for_next_step(self, before: str) -> None:
        """Wait until another incarnation than this one has applied a gradient."""
        _until(lambda: (s := self.status()) and s.incarnation != before)
        first = _until(self.status).progress.steps
        _until(lambda: (s := self.status()) and s.progress.steps > first)


def _until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _DEADLINE_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise RuntimeError("nothing happens any more")
        time.sleep(0.02)
    return found


Times = tuple[float, float]
"""Until it was noticed, and until work went on, in seconds."""


def _kill_worker(job: Running, turn: int) -> Times:
    at = time.time()
    os.kill(job.pid(turn % 2), signal.SIGKILL)
    noticed = job.event_after("WorkerPreempted", turn % 2, at) - at
    return noticed, noticed  # the task is taken back in the same step


def _freeze_worker(job: Running, turn: int) -> Times:
    at, pid = time.time(), job.pid(turn % 2)
    os.kill(pid, signal.SIGSTOP)
    missed = job.event_after("WorkerLost", turn % 2, at) - at
    # Killed, and not thawed: an instance that came back once is given more time from then on.
    os.kill(pid, signal.SIGKILL)
    return missed, missed


def _kill_server(job: Running, turn: int) -> Times:
    return _lose_server(job, turn, signal.SIGKILL)


def _freeze_server(job: Running, turn: int) -> Times:
    return _lose_server(job, turn, signal.SIGSTOP)


def _lose_server(job: Running, turn: int, how: signal.Signals) -> Times:
    # A snapshot with progress since the last time: the first one after a rollback has none yet. And
    # snapshots must differ, or the master takes this for servers that never last.
    so_far = job.snapshots()
    _until(lambda: job.snapshots() >= so_far + 2)
    before = _until(job.status).incarnation
    at = time.time()
    os.kill(job.server_pid(turn % 2), how)
    noticed = job.event_after("ParameterServerLost", None, at) - at
    job.wait_for_next_step(before)
    return noticed, time.time() - at


def _kill_master(job: Running, turn: int) -> Times:
    before = job.master()
    at = time.time()
    os.kill(before["pid"], signal.SIGKILL)
    after = _until(lambda: (m := job.master())["pid"] != before["pid"] and m)
    began = time.time() - (_uptime() - int(after["start_time"]) / os.sysconf("SC_CLK_TCK"))
    job.wait_for_next_step(before["incarnation"])
    return began - at, time.time() - began


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of death.

    Attributes:
        name: of the row.
        until: what is measured in addition to the noticing.
        limit_s: that it is held against.
        act: does it once.
    """

    name: str
    until: str
    limit_s: float
    act: Callable[[Running, int], Times]


WITHOUT_SERVERS = (
    Fault("worker killed", "task taken back", 2.0, _kill_worker),
    Fault("worker frozen", "task taken back", 2.0, _freeze_worker),
    Fault("master killed", "from its start to the next step", 5.0, _kill_master),
)
WITH_SERVERS = (
    Fault("server killed", "next gradient applied", 15.0, _kill_server),
    Fault("server frozen", "next gradient applied", 15.0, _freeze_server),
)


def measures() -> list[dict[str, object]]:
    """Each kind of death, ``KILLS`` times."""
    rows = []
    for servers, faults in ((0, WITHOUT_SERVERS), (2, WITH_SERVERS)):
        chosen = [fault for fault in faults if FAULTS in fault.name]
        if chosen:
            with tempfile.TemporaryDirectory(prefix="edl-bench-") as place:
                job = Running(Path(place), servers)
                try:
                    for fault in chosen:
                        rows += _measure(job, fault)
                finally:
                    job.close()
    return [row.to_json() for row in rows]


def _measure(job: Running, fault: Fault) -> Iterator[Measure]:
    times = []
    for turn in range(KILLS):
        _until(job.both_work)
        time.sleep(1.0)
        times.append(fault.act(job, turn))
        noticed_s, seconds = times[-1]
        line = f"  {fault.name}, {turn + 1} of {KILLS}: {noticed_s:.2f} s, {seconds:.2f} s"
        print(line, file=sys.stderr, flush=True)
    noticed, until = zip(*times, strict=True)
    for name, found in (("noticed", noticed), (fault.until, until)):
        if name == "noticed" and noticed == until:
            continue  # one and the same moment
        for what, value in (("median", statistics.median(found)), ("worst", max(found))):
            yield Measure(
                name=f"{fault.name}, {name}: {what} of {KILLS}",
                value=value,
                unit="s",
                peer="limit",
                peer_value=fault.limit_s,
                ratio=fault.limit_s / value,
                target=None if name == "noticed" else 1.0,
            )
