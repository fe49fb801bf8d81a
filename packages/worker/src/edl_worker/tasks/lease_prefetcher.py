"""Gets the next piece of work while the present one is still being done."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edl_proto.v1 import task_pb2
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.tasks.lookahead import Lookahead
from edl_worker.transport.master_client import MasterClient

if TYPE_CHECKING:
    from edl_worker.model_file import Batch

log = logging.getLogger(__name__)

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Assignment:
    """A leased task with its pipeline.

    Attributes:
        batches: the task's minibatches, the first one read already; None if it has no records.
        failure: what building the pipeline or reading the first minibatch raised.
    """

    lease: task_pb2.Lease
    batches: Lookahead[Batch] | None = None
    failure: BaseException | None = None

    @property
    def ref(self) -> task_pb2.LeaseRef:
        return task_pb2.LeaseRef(task=self.lease.task, token=self.lease.token)

    def close(self) -> None:
        if self.batches is not None:
            self.batches.close()


Answer = Assignment | task_pb2.Leave
Pipeline = Callable[[task_pb2.Lease], "Iterator[Batch] | None"]


class LeasePrefetcher:
    """Leases one task at a time in a thread of its own, and builds its pipeline there.

    Made anew for each registration with a master.

    Args:
        pipeline: the minibatches of a lease; None for a task without records.
    """

    def __init__(self, client: MasterClient, state: SharedState, pipeline: Pipeline) -> None:
        self._client = client
        self._state = state
        self._pipeline = pipeline
        self._incarnation = client.incarnation
        self._answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._busy = False  # a thread is at work, or its answer waits to be taken
        self._closed = False

    def request(self) -> None:
        """Begin to get the next task, if that has not begun yet."""
        if not self._busy:
            self._busy = True
            threading.Thread(target=self._run, name="prefetcher", daemon=True).start()

    def take(self) -> Answer:
        """The next task, or what the master says instead.

        Raises:
            LeavingError: the worker has to leave.
            MasterReplacedError: the master is another one.
            EdlError: what the master said.
        """
        self.request()
        while True:
            self._state.check()
            try:
                answer = self._answers.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            self._busy = False
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Assignment) and self._state.is_lost(answer.ref):
                log.info("task %s was lost before it began", describe(answer.lease))
                answer.close()
                self._state.release(answer.ref)
                self.request()
                continue
            return answer

    def close(self) -> None:
        """Nothing is taken any more."""
        self._closed = True

    def _run(self) -> None:
        try:
            self._answers.put(self._next())
        except BaseException as error:
            self._answers.put(error)

    def _next(self) -> Answer:
        while True:
            reply = self._client.lease(len(self._state.leases()), self._incarnation)
            match reply.WhichOneof("answer"):
                case "lease":
                    return self._prepare(reply.lease)
                case "leave":
                    return reply.leave
                case _:
                    self._state.sleep(reply.wait.retry_in_s or _POLL_S)
            if self._closed:
                return task_pb2.Leave(reason="closed")

    def _prepare(self, lease: task_pb2.Lease) -> Assignment:
        self._state.hold(task_pb2.LeaseRef(task=lease.task, token=lease.token))
        batches = None
        try:
            source = self._pipeline(lease)
            if source is not None:
                batches = Lookahead(source)
                batches.more()
        except Exception as error:
            return Assignment(lease, batches, error)
        return Assignment(lease, batches)


def describe(lease: task_pb2.Lease) -> str:
    """A task for a log: ``training 1/17 file.rec[640:1280]``."""
    key = lease.task
    text = f"{task_pb2.TaskType.Name(key.type).lower()} {key.round}/{key.number}"
    if lease.records.uri:
        name = lease.records.uri.rsplit("/", 1)[-1]
        text += f" {name}[{lease.records.start}:{lease.records.stop}]"
    return text
