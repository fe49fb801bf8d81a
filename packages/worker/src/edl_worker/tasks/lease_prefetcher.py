"""Leases the next task while the present one is still being done."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core.tasks import Lease, Leave, Wait
from edl_worker.tasks.lookahead import Lookahead
from edl_worker.transport.task_client import TaskClient

if TYPE_CHECKING:
    from edl_worker.core.batch import Batch

log = logging.getLogger(__name__)

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Assignment:
    """A leased task with its input pipeline.

    Attributes:
        batches: the task's minibatches, the first one read already; None if it has no records.
        error: what building the pipeline or reading the first minibatch raised.
    """

    lease: Lease
    batches: Lookahead[Batch] | None = None
    error: BaseException | None = None

    def close(self) -> None:
        if self.batches is not None:
            self.batches.close()


Minibatches = Callable[[Lease], "Iterator[Batch] | None"]
"""The minibatches of a task; None if it has no records."""


class LeasePrefetcher:
    """A prefetcher that leases one task at a time in a thread, and builds its pipeline there.

    Each registration with a master needs a new prefetcher.
    """

    def __init__(self, client: TaskClient, state: SharedState, minibatches: Minibatches) -> None:
        self._client = client
        self._state = state
        self._minibatches = minibatches
        self._incarnation = client.incarnation
        self._answers: queue.SimpleQueue[Assignment | Leave | BaseException] = queue.SimpleQueue()
        self._busy = False  # a thread is at work, or its answer waits to be taken
        self._lock = threading.Lock()
        self._closed = False

    def request(self) -> None:
        """Start to lease the next task, if that has not started yet."""
        if not self._busy:
            self._busy = True
            threading.Thread(target=self._run, name="lease", daemon=True).start()

    def take(self, meanwhile: Callable[[], None] | None = None) -> Assignment | Leave:
        """Return the next task, or the master's request to leave.

        Args:
            meanwhile: called again and again until there is an answer; it waits a little, and may
                raise what this method does.

        Raises:
            LeavingError: the worker has to leave.
            MasterReplacedError: the master is another incarnation.
            EdlError: the error that the master reports.
        """
        self.request()
        while True:
            self._state.check()
            try:
                answer = self._answers.get(meanwhile is None, _POLL_S)
            except queue.Empty:
                if meanwhile is not None:
                    meanwhile()
                continue
            self._busy = False
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Assignment) and self._state.is_lost(answer.lease.ref):
                log.info("task %s was lost before it began", answer.lease)
                answer.close()
                self._state.release(answer.lease.ref)
                self.request()
                continue
            return answer

    def close(self) -> None:
        """Stop asking; nothing is taken any more, and no lease is held from now on.

        The lease of a task that was not taken stays held, as that of the present task.
        """
        with self._lock:
            self._closed = True
        with contextlib.suppress(queue.Empty):
            self._drop(self._answers.get_nowait())

    def _run(self) -> None:
        answer: Assignment | Leave | BaseException
        try:
            answer = self._next()
        except BaseException as error:
            answer = error
        with self._lock:
            if not self._closed:
                self._answers.put(answer)
                return
        self._drop(answer)

    @staticmethod
    def _drop(answer: Assignment | Leave | BaseException) -> None:
        if isinstance(answer, Assignment):
            answer.close()

    def _next(self) -> Assignment | Leave:
        logged = ""
        while True:
            match self._client.lease(self._incarnation):
                case Lease() as lease:
                    return self._prepare(lease)
                case Leave() as leave:
                    return leave
                case Wait(retry_in_s, reason):
                    if reason != logged:
                        log.info("no task now: %s", reason)
                    logged = reason
                    self._state.sleep(retry_in_s or _POLL_S)
            if self._closed:
                return Leave("closed")

    def _prepare(self, lease: Lease) -> Assignment | Leave:
        with self._lock:
            if self._closed:
                return Leave("closed")
            self._state.hold(lease.ref)
        batches = None
        try:
            source = self._minibatches(lease)
            if source is not None:
                batches = Lookahead(source)
                batches.has_next()
        except Exception as error:
            return Assignment(lease, batches, error)
        return Assignment(lease, batches)
