"""The platform of one container engine: every instance is a container, found by its labels.

The engine keeps what runs, so that a master that is started again asks it. A container sees the
master's loopback (the network is the machine's), the places that its job needs, under the paths
that they have outside, and nothing else of the machine; it can change nothing of itself.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl_master.adapters import worker_logs
from edl_master.adapters.observations import ObservationQueue
from edl_master.core.events import InstanceExited, InstanceInspected, InstanceNotStarted
from edl_master.core.failure_policy import PREEMPTING, how_ended
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import InstanceStarted, LiveInstance, Observation
from edl_runtime.local import job_directory
from edl_runtime.local.container_calls import CallRefusedError, call

log = logging.getLogger(__name__)

_CALL_S = 60.0
_CLOSE_MARGIN_S = 30.0  # an engine under load takes its time to end a container
_AGAIN_S = 0.5
_CALLS = 8  # at a time
_WAIT_S = 20.0
_AWAY_S = 30.0
"""A companion that was killed is replaced within this time, on a busy machine too."""

_CALL_ERRORS = (OSError, CallRefusedError)


@dataclass(slots=True)
class _Container:
    worker: WorkerId
    attempt: int
    instance: InstanceId
    log_start: int
    asked: bool = False  # to leave, by us
    kill_at: float = math.inf
    is_up: bool = False  # the engine has started it


class LocalContainers:
    """Instances as containers of a local engine; see ``core.platform.Platform`` for the promises.

    Args:
        command: the command line of a worker's instances, by worker.
        environment: its variables, besides the image's own.
        job: name of the job.
        job_dir: its directory, where its companion takes calls.
    """

    def __init__(
        self,
        command: Callable[[WorkerId], Sequence[str]],
        environment: Mapping[str, str],
        job: str,
        job_dir: Path,
    ) -> None:
        self._command = command
        self._environment = dict(environment)
        self._job = job
        self._job_dir = job_dir
        self._logs = job_dir / job_directory.LOGS
        self._logs.mkdir(parents=True, exist_ok=True)
        self._seen = ObservationQueue()
        self._changed = threading.Condition()
        self._containers: dict[InstanceId, _Container] = {}  # guarded by _changed
        self._closed = False
        self._over = threading.Event()
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="container-calls")
        threading.Thread(target=self._keep_time, name="graces", daemon=True).start()

    # --- the port --------------------------------------------------------------------------

    def start(self, worker: WorkerId, attempt: int) -> None:
        with self._changed:
            if self._closed:
                self._seen.put(InstanceNotStarted(worker, "the platform is closed"))
                return
            instance = InstanceId(
                f"edl-{self._job}-worker-{worker}-{attempt}-{secrets.token_hex(4)}"
            )
            container = _Container(worker, attempt, instance, log_start=0)
            self._containers[instance] = container
        thread = threading.Thread(
            target=self._run_container, args=(container,), name=instance, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no thread left at the moment
            self._forget(container)
            self._seen.put(InstanceNotStarted(worker, str(error)))

    def inspect(self, worker: WorkerId) -> None:
        path = worker_logs.path_of(self._logs, worker)
        with self._changed:
            asked = [it for it in self._containers.values() if it.worker == worker and it.is_up]
        for container in asked:  # a disk may hang
            summary = worker_logs.log_summary(
                "container", worker_logs.tail(path, container.log_start)
            )
            self._seen.put(InstanceInspected(worker, container.attempt, summary))

    def stop(self, worker: WorkerId, grace_s: float) -> None:
        with self._changed:
            for container in self._containers.values():
                if container.worker == worker:
                    self._ask(container, grace_s)

    def kill(self, worker: WorkerId) -> None:
        self.stop(worker, 0)

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        return self._seen.take(timeout_s)

    def adopt(self) -> tuple[LiveInstance, ...]:
        found, ended = [], []
        listed = self._call_until_answered("list")["containers"]
        with self._changed:
            for each in listed:
                instance = InstanceId(each["instance"])
                if instance in self._containers:
                    continue
                if not each["running"]:
                    ended.append(instance)
                    continue
                container = _Container(
                    WorkerId(each["worker"]),
                    each["attempt"],
                    instance,
                    each["log_start"],
                    is_up=True,
                )
                self._containers[instance] = container
                found.append(container)
        for container in found:
            threading.Thread(
                target=self._await_end, args=(container,), name=container.instance, daemon=True
            ).start()
        for instance in ended:
            self._call_until_answered("remove", instance)
        return tuple(LiveInstance(each.worker, each.attempt, each.instance) for each in found)

    def close(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s + _CLOSE_MARGIN_S
        with self._changed:
            for container in self._containers.values():
                self._ask(container, grace_s)
            already, self._closed = self._closed, True
            while self._containers and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            for container in self._containers.values():
                log.error(
                    "worker %d: container %s has not ended", container.worker, container.instance
                )
            self._over.set()
            self._changed.notify_all()
        if not already:
            self._calls.shutdown(wait=False)
            self._seen.close()

    # --- a container's life, in a thread of its own ----------------------------------------

    def _run_container(self, container: _Container) -> None:
        try:
            self._make(container)
        except _CALL_ERRORS as error:
            self._forget(container)
            self._seen.put(InstanceNotStarted(container.worker, _message(error)))
            return
        self._seen.put(InstanceStarted(container.worker, container.attempt, container.instance))
        with self._changed:
            container.is_up = True
            if container.asked:  # while it was being made
                self._signal(container)
        self._await_end(container)

    def _make(self, container: _Container) -> None:
        path = worker_logs.path_of(self._logs, container.worker)
        with path.open("ab") as output:
            output.write(worker_logs.heading(container.worker, container.attempt))
            output.flush()
            container.log_start = output.tell()
        self._call_until_answered(
            "start",
            container.instance,
            log_start=container.log_start,
            command=list(self._command(container.worker)),
            environment=self._environment,
        )

    def _await_end(self, container: _Container) -> None:
        state = self._state_at_end(container)
        with self._changed:
            if self._containers.get(container.instance) is not container:
                return
        code, by = (
            (None, int(signal.SIGKILL)) if state is None else how_ended(int(state["exit_code"]))
        )
        tail = worker_logs.tail(
            worker_logs.path_of(self._logs, container.worker), container.log_start
        )
        memory = state is not None and bool(state["out_of_memory"])
        if memory:
            # Not a preemption: the next container would end in the same way.
            tail += "\n(killed by the kernel: the machine or the container ran out of memory)"
        # Reported before it is forgotten: after the last container, ``observe`` ends.
        self._seen.put(
            InstanceExited(
                worker=container.worker,
                instance=container.instance,
                exit_code=code,
                signal=by,
                preempted=by in PREEMPTING and not container.asked and not memory,
                log_tail=tail,
                attempt=container.attempt,
            )
        )
        self._forget(container)

    def _state_at_end(self, container: _Container) -> Mapping[str, Any] | None:
        """How it ended, after which nothing of it is left; None if it was gone already."""
        while True:
            try:
                state = self._call_companion("wait", container.instance, seconds=_WAIT_S)
                if state["state"] == "running":
                    continue
                with self._changed:
                    is_ours = self._containers.get(container.instance) is container
                if is_ours:
                    self._call_companion("remove", container.instance)
                return None if state["state"] == "gone" else state
            except _CALL_ERRORS as error:
                if self._over.wait(_AGAIN_S):
                    return None
                log.warning(
                    "the state of container %s cannot be read: %s",
                    container.instance,
                    _message(error),
                )

    def _forget(self, container: _Container) -> None:
        with self._changed:
            self._containers.pop(container.instance, None)
            self._changed.notify_all()

    # --- asking to leave -------------------------------------------------------------------

    def _ask(self, container: _Container, grace_s: float) -> None:
        container.asked = True
        container.kill_at = min(container.kill_at, time.monotonic() + grace_s)
        self._changed.notify_all()
        if container.is_up:
            self._signal(container)

    def _signal(self, container: _Container) -> None:
        """Ask it to leave, or end it if its time is over. Holds the lock, so calls from afar."""
        over = container.kill_at <= time.monotonic()
        what = signal.SIGKILL if over else signal.SIGTERM
        if over:
            container.kill_at = math.inf
        with contextlib.suppress(RuntimeError):  # after close, no container is left
            self._calls.submit(self._send, container, what)

    def _send(self, container: _Container, what: signal.Signals) -> None:
        try:
            if not self._call_companion("signal", container.instance, signal=what.name)["sent"]:
                log.debug("%s was not sent to %s: it has ended", what.name, container.instance)
        except _CALL_ERRORS as error:
            log.warning("%s was not sent to %s: %s", what.name, container.instance, _message(error))
            with self._changed:
                container.kill_at = min(container.kill_at, time.monotonic() + _AGAIN_S)
                self._changed.notify_all()

    def _keep_time(self) -> None:
        with self._changed:
            while not self._over.is_set():
                up = [each for each in self._containers.values() if each.is_up]
                kill_at = min((each.kill_at for each in up), default=math.inf)
                wait_s = kill_at - time.monotonic()
                if wait_s > 0:
                    self._changed.wait(None if math.isinf(wait_s) else wait_s)
                    continue
                for container in up:
                    if container.kill_at <= time.monotonic():
                        self._signal(container)

    def _call_companion(self, what: str, instance: str = "", **more: Any) -> dict[str, Any]:
        """Call the companion of this container (docs/adr/0022)."""
        request = {"call": what, **more} | ({"instance": instance} if instance else {})
        return call(self._job_dir, request, _CALL_S)

    def _call_until_answered(self, what: str, instance: str = "", **more: Any) -> dict[str, Any]:
        """Call the companion again while it is being replaced; only without the lock.

        Raises:
            CallRefusedError: it did not do it.
            OSError: nobody has replaced it in time, or the platform was closed meanwhile.
        """
        deadline = time.monotonic() + _AWAY_S
        while True:
            try:
                return self._call_companion(what, instance, **more)
            except OSError:
                if time.monotonic() > deadline or self._over.wait(_AGAIN_S):
                    raise


def _message(error: Exception) -> str:
    if isinstance(error, CallRefusedError):
        return str(error)
    return f"{type(error).__name__}: {error}"
