"""Kills and freezes every process of real jobs, and audits what they made: ``./dev chaos``.

A seed gives the schedule: what happens, to whom, and how long after the fault before. Jobs run one
after the other while there is time; each ends in calm and is audited. The counting model shows
records that were lost or repeated; the digits show that a real model still learns. What the
machine does in between is its own affair, so the same seed gives the same faults, not the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import digits
import recordio
import recordio.example
from edl_proto.local import supervision

ROOT = Path(__file__).resolve().parent.parent
EDL = str(Path(sys.executable).parent / "edl")
WORKERS = 2
MOST_SERVERS = 2
INDEXES = math.lcm(WORKERS, MOST_SERVERS)
SHORT_S = 30.0
"""A job that would be left in calm so soon is not begun."""
END_S = 420.0
"""How long a job may take to end once nothing disturbs it any more."""


@dataclass(frozen=True)
class Fault:
    """Something to do to somebody.

    Attributes:
        after_s: since the fault before.
        role: worker, server, master, supervisor, both (master and supervisor), everything (both
            and all workers, as at the end of a session), client.
        what: kill, term, freeze, slow.
        for_s: how long a freeze lasts, or slowness.
        index: which worker or parameter server, modulo how many there are.
    """

    after_s: float
    role: str
    what: str
    for_s: float
    index: int


WEIGHTS = {
    ("worker", "kill"): 5,
    ("worker", "term"): 2,
    ("worker", "freeze"): 4,
    ("worker", "slow"): 2,
    ("master", "kill"): 4,
    ("master", "term"): 1,
    ("master", "freeze"): 2,
    ("supervisor", "kill"): 2,
    ("supervisor", "freeze"): 1,
    ("both", "kill"): 2,
    ("both", "freeze"): 1,
    ("everything", "term"): 1,
    ("client", "kill"): 2,
    ("server", "kill"): 3,
    ("server", "freeze"): 3,
    ("server", "slow"): 1,
}

FREEZES_S = (0.3, 1.0, 2.5, 6.0)
LONG_FREEZES_S = (*FREEZES_S, 20.0)
"""Of parameter servers: the last is longer than the master waits for one."""


def schedule(seed: int, mean_s: float) -> Iterator[Fault]:
    """The endless schedule of a seed, one fault every ``mean_s`` on average."""
    random = Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while True:
        role, what = random.choices(kinds, weights)[0]
        yield Fault(
            after_s=random.expovariate(1 / mean_s),
            role=role,
            what=what,
            for_s=random.choice(LONG_FREEZES_S if role == "server" else FREEZES_S),
            index=random.randrange(INDEXES),
        )


class Job:
    """One job, started by the command and left to itself."""

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

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.directory / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def status(self) -> dict[str, Any]:
        """As the master wrote it last; asking by the command would heal the job."""
        return self._read("status.json")

    @property
    def is_over(self) -> bool:
        return supervision.is_over(self.directory)

    @property
    def has_begun(self) -> bool:
        """Whether there is something to lose: faults before that only try its start again."""
        return int(self.status().get("progress", {}).get("records_done", 0)) > 0

    def has(self, role: str) -> bool:
        """Whether anybody in this job ever plays that role."""
        return role != "server" or self.servers > 0

    def name_of(self, fault: Fault) -> str:
        """Whom a fault is for, in words."""
        match fault.role:
            case "worker":
                return f"worker {fault.index % WORKERS}"
            case "server":
                return f"server {fault.index % self.servers}"
            case role:
                return role

    def victims(self, fault: Fault) -> list[int]:
        """Process numbers that a fault is for; none if nobody plays that role now."""
        match fault.role:
            case "client":
                living = self._client is not None and self._client.poll() is None
                return [self._client.pid] if living and self._client else []
            case "worker":
                number = fault.index % WORKERS
                pods = sorted((self.directory / "instances").glob(f"worker-{number}-*.json"))
                return [
                    pid for pod in pods if (pid := self._read(f"instances/{pod.name}").get("pid"))
                ]
            case "server":
                servers = self.status().get("servers", [])
                pids = [one["pid"] for one in servers if one["id"] == fault.index % self.servers]
                return [pid for pid in pids if _is_server(pid)]
            case role:
                found, workers = [], []
                if role == "everything":
                    pods = sorted((self.directory / "instances").glob("*.json"))
                    workers = [self._read(f"instances/{pod.name}").get("pid") for pod in pods]
                if role in ("master", "both", "everything"):
                    found.append(self._read("master.json").get("pid"))
                if role in ("supervisor", "both", "everything"):
                    found.append(supervision.supervisor_pid(self.directory))
                ours = [pid for pid in found if pid and _is_ours(pid, self.name)]
                return ours + [pid for pid in workers if pid]

    def close(self) -> None:
        """End everything of it."""
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            if not self.is_over:
                self.edl("stop", self.name, "--now")
        if self._client is not None:
            self._client.kill()
            self._client.wait()


def _is_ours(pid: int, name: str) -> bool:
    """A number may be another process's by now; whom we kill must be of this job."""
    try:
        return f"jobs/{name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _is_server(pid: int) -> bool:
    """Likewise; a status may be of a moment ago."""
    try:
        return b"edl_master.parameter_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def commit(fault: Fault, victims: list[int]) -> None:
    """Do it. Freezes end by themselves, in a thread of their own."""
    match fault.what:
        case "kill":
            _signal(victims, signal.SIGKILL)
        case "term":
            _signal(victims, signal.SIGTERM)
        case "freeze":
            _signal(victims, signal.SIGSTOP)
            threading.Timer(fault.for_s, lambda: _signal(victims, signal.SIGCONT)).start()
        case "slow":
            threading.Thread(target=_slow, args=(victims, fault.for_s), daemon=True).start()


def _slow(victims: list[int], for_s: float) -> None:
    """Let them run a tenth of the time."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        _signal(victims, signal.SIGSTOP)
        time.sleep(0.09)
        _signal(victims, signal.SIGCONT)
        time.sleep(0.01)


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, what)


def torment(
    job: Job, faults: Iterator[Fault], until: float, say: Callable[[str], None]
) -> Counter[str]:
    """Carry the schedule out until it is time for calm, or the job is over."""
    done: Counter[str] = Counter()
    began = time.monotonic()
    while not job.has_begun and not job.is_over and time.monotonic() < began + END_S:
        time.sleep(0.1)
    for fault in faults:
        if not job.has(fault.role):
            continue
        at = time.monotonic() + fault.after_s
        while time.monotonic() < min(at, until) and not job.is_over:
            time.sleep(0.05)
        if job.is_over or time.monotonic() >= until:
            return done
        victims = job.victims(fault)
        how_long = f" for {fault.for_s:g} s" if fault.what in ("freeze", "slow") else ""
        what = f"{fault.what} {job.name_of(fault)}{how_long}"
        if not victims:
            say(f"  {time.monotonic() - began:6.1f} s  ({what}: nobody there)")
            continue
        say(f"  {time.monotonic() - began:6.1f} s  {what} (pid {', '.join(map(str, victims))})")
        commit(fault, victims)
        done[f"{fault.role} {fault.what}"] += 1
        if fault.role in ("client", "everything"):
            job.follow()  # of a job without processes only a client can start the supervisor
    return done


# --- jobs and their audits -------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A job to torment: what it is, how it is started, and what it must have made."""

    title: str
    arguments: list[str]
    servers: int
    audit: Callable[[Path, dict[str, Any]], list[str]]


def counting(place: Path, update: str, servers: int, total: int, epochs: int) -> Kind:
    data = place / "numbers"
    if not data.exists():
        data.mkdir()
        cuts = [0, total // 7, total // 2, total]
        for part, (start, stop) in enumerate(itertools.pairwise(cuts)):
            with recordio.Writer(str(data / f"part-{part}.recordio")) as writer:
                for number in range(start, stop):
                    writer.write(recordio.example.encode({"number": np.array([number])}))

    def audit(output: Path, status: dict[str, Any]) -> list[str]:
        (weights,) = load_file(output / "parameters.safetensors").values()
        weights = weights.reshape(-1)
        lost, repeated = int(np.sum(weights < epochs)), int(np.sum(weights > epochs))
        exact = int(np.sum(weights == epochs))
        print(
            f"  audit: {exact:,} of {total:,} weights are exactly {epochs}:"
            f" {lost} lost, {repeated} repeated"
        )
        wrong = [f"{lost} records lost, {repeated} repeated"] if lost or repeated else []
        return wrong + _trained(status, total * epochs)

    return Kind(
        f"counting, {update}, parameter servers: {servers}",
        [
            *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting"),
            *("--params", f"size={total}", "--data", str(data), "--num-epochs", str(epochs)),
            *("--minibatch-size", "16", "--records-per-task", "400", "--update", update),
            # What is harder: with one more gradient of each worker under way.
            *(("--gradient-reduction", "sum") if update == "sync" else ("--overlap",)),
        ],
        servers,
        audit,
    )


def mnist(place: Path, servers: int, epochs: int) -> Kind:
    data = place / "digits"
    trained, _ = digits.make(data) if not data.exists() else (_count(data / "train"), 0)

    def audit(output: Path, status: dict[str, Any]) -> list[str]:
        accuracy = float(status.get("metrics", {}).get("accuracy", 0.0))
        print(f"  audit: accuracy {accuracy:.3f} on digits that were held out")
        wrong = [] if accuracy > 0.9 else [f"the model has learned too little: {accuracy:.3f}"]
        return wrong + _trained(status, trained * epochs)

    return Kind(
        f"digits, async, parameter servers: {servers}",
        [
            *("train", "--model-zoo", str(ROOT / "model_zoo")),
            *("--model-def", "mnist.mnist_functional_api", "--minibatch-size", "64"),
            *("--data", f"{data}/train/*.recordio"),
            *("--validation-data", f"{data}/test/*.recordio", "--num-epochs", str(epochs)),
        ],
        servers,
        audit,
    )


def _count(place: Path) -> int:
    return sum(recordio.open_source(uri).count() for uri in recordio.expand(str(place)))


def _trained(status: dict[str, Any], wanted: int) -> list[str]:
    found = int(status.get("records_trained", 0))
    return [] if found == wanted else [f"{found} records trained, {wanted} were wanted"]


_WHOLE = ("parameters.safetensors", "model.keras", "saved_model", "trained_model.pb")


def run(kind: Kind, name: str, home: Path, faults: Iterator[Fault], until: float) -> list[str]:
    """One job from start to audit; what was wrong."""
    output = home.parent / f"{name}-model"
    began = time.monotonic()
    print(f"{name}: {kind.title}", flush=True)
    job = Job(home, name, [*kind.arguments, "--output", str(output)], kind.servers)
    try:
        done = torment(job, faults, until, lambda line: print(line, flush=True))
        calm = time.monotonic()
        while not job.is_over:
            if time.monotonic() - calm > END_S:
                return [f"the job does not end: {json.dumps(job.status())[:2000]}"]
            time.sleep(0.2)
        status = job.status()
        _report(status, done, time.monotonic() - began)
        if status["state"] != "SUCCEEDED":
            return [f"the job ended {status['state']}: {json.dumps(status.get('error'))}"]
        missing = [name for name in _WHOLE if not (output / name).exists()]
        if missing:
            return [f"the trained model lacks {' and '.join(missing)}"]
        return kind.audit(output, status)
    finally:
        job.close()


def _report(status: dict[str, Any], done: Counter[str], seconds: float) -> None:
    progress = status.get("progress", {})
    lost = {k: round(v) for k, v in progress.get("lost_s", {}).items() if v >= 0.5}
    print(
        f"  {done.total()} faults in {seconds:.0f} s: "
        + ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
    )
    print(
        f"  {status['state']}; {status.get('records_replayed', 0)} records computed again,"
        f" {status.get('preemptions', 0)} preemptions, {status.get('worker_failures', 0)} failures;"
        f" goodput {progress.get('goodput', 0):.0%}, worker seconds lost {lost}",
        flush=True,
    )


def _kinds(place: Path, chosen: argparse.Namespace) -> list[Kind]:
    """The jobs of one round, in their order."""
    kinds = []
    for servers in chosen.servers:
        if chosen.model != "mnist":
            kinds += [counting(place, u, servers, chosen.records, 3) for u in chosen.update]
        if chosen.model != "counting":
            kinds.append(mnist(place, servers, 20))
    return kinds


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between faults, on average"
    )
    parser.add_argument("--model", choices=("all", "counting", "mnist"), default="all")
    parser.add_argument(
        "--servers",
        type=int,
        nargs="+",
        choices=range(MOST_SERVERS + 1),
        default=[0, 1, 2],
        help="parameter servers; of several numbers, some jobs have the one and some the other",
    )
    parser.add_argument(
        "--update",
        nargs="+",
        choices=("async", "sync"),
        default=["async", "sync"],
        help="of the counting model, likewise",
    )
    parser.add_argument("--records", type=int, default=40_009, help="of the counting model")
    parser.add_argument("--keep", action="store_true", help="keep the files of the jobs")
    chosen = parser.parse_args()
    faults = schedule(chosen.seed, chosen.every)
    place = Path(tempfile.mkdtemp(prefix="edl-chaos-"))
    until = time.monotonic() + chosen.minutes * 60
    print(
        f"seed {chosen.seed}, {chosen.minutes:g} minutes, a fault every {chosen.every:g} s, {place}"
    )
    wrong: list[str] = []
    number = 0
    try:
        for kind in itertools.cycle(_kinds(place, chosen)):
            name = f"chaos-{chosen.seed}-{number}"
            try:
                wrong = run(kind, name, place / "home", faults, until)
            except Exception:  # then somebody will want to see the files
                wrong = [traceback.format_exc()]
            number += 1
            if wrong or time.monotonic() >= until - SHORT_S:
                break
    finally:
        if wrong or chosen.keep:
            print(f"the jobs' files are in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"seed {chosen.seed}: {number} jobs, {'WRONG' if wrong else '0 lost, 0 repeated'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
