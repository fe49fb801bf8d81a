"""The platform of one machine: every instance is a process of its own session.

The running instances are also on disk (``instances/``), so that a restarted master finds those
of its predecessor, and never touches a process that merely has the same number. Each instance has a
directory for temporary files, removed when the instance is gone: a killed process cannot remove
them itself, and TensorFlow leaves files for every function that it compiles.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edl_master.adapters import worker_logs
from edl_master.adapters.observations import ObservationQueue
from edl_master.adapters.storage_errors import is_full, storage_error
from edl_master.core.events import InstanceExited, InstanceInspected, InstanceNotStarted
from edl_master.core.failure_policy import PREEMPTING, split_exit_code
from edl_master.core.gpus import NO_GPUS, GpuAssignment
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import InstanceStarted, LiveInstance, Observation
from edl_runtime.files import replace_file
from edl_runtime.local import process_environment, process_identity
from edl_runtime.local.gpus import VISIBLE

log = logging.getLogger(__name__)

_CLOSE_MARGIN_S = 10.0  # a process cannot refuse SIGKILL, but a disk may hold it for a while
_REAP_S = 5.0


@dataclass(slots=True)
class _Process:
    worker: WorkerId
    attempt: int
    instance: InstanceId
    pid: int
    started: int
    pidfd: int
    child: subprocess.Popen[bytes] | None  # None: another master's child
    log_path: Path
    log_start: int
    record: Path
    scratch: Path | None  # its temporary files; None: shared with other processes
    memory_kills: int  # on this machine, when the process started
    asked: bool = False  # to leave, by us
    kill_at: float = math.inf


def limit_threads(
    environ: Mapping[str, str], instances: int, cores: int | None = None
) -> dict[str, str]:
    """Return variables with which ``instances`` processes share the cores without contention.

    TensorFlow starts a thread per core in every process. What the user has set is left alone.
    """
    environment = dict(environ)
    cores = cores or len(os.sched_getaffinity(0))
    if instances > 1 and not any(name in environ for name in process_environment.THREADS):
        share = str(max(1, cores // instances))
        environment.update(dict.fromkeys(process_environment.THREADS, share))
    return environment


class LocalProcesses:
    """Instances as processes of this machine; see ``core.platform.Platform`` for the promises.

    Args:
        command: the command line of a worker's instances, by worker.
        environment: its environment, whole.
        log_dir: directory of ``worker-N.log``; a worker's instances append to one file.
        records: directory with one JSON file per living instance; temporary files are next to it.
        vmstat: where the kernel counts the processes that it killed for lack of memory.
        gpus: which worker has which; an instance sees only its own.
    """

    def __init__(
        self,
        command: Callable[[WorkerId], Sequence[str]],
        environment: Mapping[str, str],
        log_dir: Path,
        records: Path,
        vmstat: Path = Path("/proc/vmstat"),
        gpus: GpuAssignment = NO_GPUS,
    ) -> None:
        self._command = command
        self._environment = dict(environment)
        self._logs = log_dir
        self._records = records
        self._scratch = records.with_name("tmp")
        self._vmstat = vmstat
        self._gpus = gpus
        self._seen = ObservationQueue()
        self._changed = threading.Condition()
        self._processes: dict[int, _Process] = {}  # by pidfd; guarded by _changed
        self._closed = False
        self._wake = os.eventfd(0)
        self._watcher = threading.Thread(target=self._watch, name="processes", daemon=True)
        for directory in (log_dir, records, self._scratch):
            directory.mkdir(parents=True, exist_ok=True)
        self._watcher.start()

    # --- the port --------------------------------------------------------------------------

    def start(self, worker: WorkerId, attempt: int) -> None:
        with self._changed:
            if self._closed:
                self._seen.put(InstanceNotStarted(worker, "the platform is closed"))
                return
            try:
                process = self._spawn(worker, attempt)
            except OSError as error:
                self._seen.put(InstanceNotStarted(worker, str(error)))
                if is_full(error):
                    raise storage_error(error, self._logs) from error
                return
            self._processes[process.pidfd] = process
            self._seen.put(InstanceStarted(worker, attempt, process.instance))
        os.eventfd_write(self._wake, 1)

    def inspect(self, worker: WorkerId) -> None:
        with self._changed:
            asked = list(self._of(worker))
        for process in asked:  # a disk may hang
            log_tail = worker_logs.tail(process.log_path, process.log_start)
            summary = worker_logs.log_summary("process", log_tail)
            self._seen.put(InstanceInspected(worker, process.attempt, summary))

    def stop(self, worker: WorkerId, grace_s: float) -> None:
        with self._changed:
            for process in self._of(worker):
                self._ask(process, grace_s)
        os.eventfd_write(self._wake, 1)

    def kill(self, worker: WorkerId) -> None:
        self.stop(worker, 0)

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        return self._seen.take(timeout_s)

    def adopt(self) -> tuple[LiveInstance, ...]:
        found = []
        with self._changed:
            known = {process.record for process in self._processes.values()}
            for record in sorted(set(self._records.glob("worker-*.json")) - known):
                process = self._read_record(record)
                if process is None:
                    continue
                self._processes[process.pidfd] = process
                found.append(LiveInstance(process.worker, process.attempt, process.instance))
        os.eventfd_write(self._wake, 1)
        return tuple(found)

    def close(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s + _CLOSE_MARGIN_S
        with self._changed:
            for process in self._processes.values():
                self._ask(process, grace_s)
            already, self._closed = self._closed, True
            os.eventfd_write(self._wake, 1)
            while self._processes and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            for process in self._processes.values():
                log.error("worker %d: process %d has not ended", process.worker, process.pid)
        if not already:
            self._watcher.join(_CLOSE_MARGIN_S)
            self._seen.close()

    # --- processes -------------------------------------------------------------------------

    def _spawn(self, worker: WorkerId, attempt: int) -> _Process:
        scratch = Path(tempfile.mkdtemp(prefix=f"worker-{worker}-", dir=self._scratch))
        try:
            return self._spawn_with(scratch, worker, attempt)
        except OSError:
            _remove(scratch)
            raise

    def _spawn_with(self, scratch: Path, worker: WorkerId, attempt: int) -> _Process:
        path = worker_logs.path_of(self._logs, worker)
        own = {"TMPDIR": str(scratch)}
        if gpu := self._gpus.gpu_of(worker):
            own[VISIBLE] = gpu
        with path.open("ab") as output:
            output.write(worker_logs.heading(worker, attempt))
            output.flush()
            log_start = output.tell()
            child = subprocess.Popen(
                list(self._command(worker)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=process_environment.change(self._environment, own),
                start_new_session=True,
            )
        with contextlib.ExitStack() as undo:
            # An instance that a next master could not find again must not run.
            undo.callback(_end, child)
            started = process_identity.start_time(child.pid)
            assert started is not None, "a child keeps its number until it is waited for"
            pidfd = os.pidfd_open(child.pid)
            undo.callback(os.close, pidfd)
            process = _Process(
                worker=worker,
                attempt=attempt,
                instance=InstanceId(process_identity.instance_name(child.pid, started)),
                pid=child.pid,
                started=started,
                pidfd=pidfd,
                child=child,
                log_path=path,
                log_start=log_start,
                record=self._records / f"worker-{worker}-{attempt}.json",
                scratch=scratch,
                memory_kills=_memory_kills(self._vmstat),
            )
            self._write_record(process)
            undo.pop_all()
        return process

    def _write_record(self, process: _Process) -> None:
        facts = {
            "worker": process.worker,
            "attempt": process.attempt,
            "pid": process.pid,
            "start_time": process.started,
            "instance": process.instance,
            "log_start": process.log_start,
            "scratch": str(process.scratch),
        }
        replace_file(process.record, json.dumps(facts).encode())

    def _read_record(self, record: Path) -> _Process | None:
        """Return the living process of a record; if there is none, clean up after it."""
        try:
            facts = json.loads(record.read_bytes())
            worker, pid, started = int(facts["worker"]), int(facts["pid"]), int(facts["start_time"])
            attempt, log_start = int(facts["attempt"]), int(facts["log_start"])
            scratch = Path(facts["scratch"]) if facts.get("scratch") else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not a record of a process: %r", record, error)
            record.unlink(missing_ok=True)
            return None
        pidfd = process_identity.Process(pid, started).open()
        if pidfd is None:
            _remove(scratch)
            record.unlink(missing_ok=True)
            return None
        return _Process(
            worker=WorkerId(worker),
            attempt=attempt,
            instance=InstanceId(process_identity.instance_name(pid, started)),
            pid=pid,
            started=started,
            pidfd=pidfd,
            child=None,
            log_path=worker_logs.path_of(self._logs, WorkerId(worker)),
            log_start=log_start,
            record=record,
            scratch=scratch,
            memory_kills=_memory_kills(self._vmstat),
        )

    def _of(self, worker: WorkerId) -> list[_Process]:
        return [process for process in self._processes.values() if process.worker == worker]

    def _ask(self, process: _Process, grace_s: float) -> None:
        process.asked = True
        process.kill_at = min(process.kill_at, time.monotonic() + grace_s)
        # The process alone, not its children: it may need them to hand work back.
        process_identity.send(process.pidfd, signal.SIGTERM if grace_s > 0 else signal.SIGKILL)

    # --- the watcher thread ----------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            with self._changed:
                processes = dict(self._processes)
                if self._closed and not processes:
                    return
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            for pidfd in processes:
                poll.register(pidfd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(self._until_next_kill(processes))}
            if self._wake in ready:
                os.eventfd_read(self._wake)
            for pidfd in ready & processes.keys():
                self._report_end(processes[pidfd])
            now = time.monotonic()
            for pidfd, process in processes.items():
                if pidfd not in ready and process.kill_at <= now:
                    process.kill_at = math.inf
                    process_identity.send(pidfd, signal.SIGKILL)

    def _until_next_kill(self, processes: Mapping[int, _Process]) -> float | None:
        """Return the milliseconds until the next kill, for poll; None without a deadline."""
        kill_at = min((process.kill_at for process in processes.values()), default=math.inf)
        if math.isinf(kill_at):
            return None
        return max(0.0, kill_at - time.monotonic()) * 1000 + 1

    def _report_end(self, process: _Process) -> None:
        # Before the leader is reaped, while no other process can have its number.
        process_identity.kill_group(process.pid)
        # Its pidfd says that it has ended: this does not wait.
        status = process.child.wait() if process.child else None
        _remove(process.scratch)
        with contextlib.suppress(OSError):  # a read-only disk: the end has to be reported anyway
            process.record.unlink()
        code, by = _read_exit_status(status)
        log_tail = worker_logs.tail(process.log_path, process.log_start)
        taken_away = status is None or by in PREEMPTING
        if by == signal.SIGKILL and _memory_kills(self._vmstat) > process.memory_kills:
            # Not a preemption: the next process would end in the same way.
            taken_away = False
            log_tail += "\n(killed by the kernel: the machine ran out of memory)"
        exited = InstanceExited(
            worker=process.worker,
            instance=process.instance,
            exit_code=code,
            signal=by,
            preempted=taken_away and not process.asked,
            log_tail=log_tail,
            attempt=process.attempt,
        )
        with self._changed:
            # Forgotten before it is closed: the next pidfd may have the same number.
            del self._processes[process.pidfd]
            os.close(process.pidfd)
            self._seen.put(exited)
            self._changed.notify_all()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_REAP_S)


def _remove(scratch: Path | None) -> None:
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def _read_exit_status(status: int | None) -> tuple[int | None, int | None]:
    """Exit code, or signal; neither where another process's child ended."""
    if status is None:
        return None, None
    return split_exit_code(status) if status >= 0 else (None, -status)


def _memory_kills(vmstat: Path) -> int:
    """Count the processes of this machine that the kernel has killed for lack of memory."""
    try:
        lines = vmstat.read_text().splitlines()
    except OSError:
        return 0
    counts = (line.split()[1] for line in lines if line.startswith("oom_kill "))
    return int(next(counts, "0"))
