"""All workers that a job has or had, and the number that it wants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import TaskKey, WorkerId, WorkerState
from edl_master.core.progress import Rate
from edl_master.core.view import WorkerView
from edl_master.core.worker import Worker


class WorkerPool:
    """The workers by number, and the wanted range.

    The pool answers questions. ``InstanceControl`` starts and stops instances,
    ``InstanceReports`` takes in what instances and the platform report.

    Args:
        minimum, maximum: how many workers are wanted; their numbers are 0 to ``maximum - 1``.
        rate_window_s: seconds over which a worker's records per second are averaged.
    """

    def __init__(self, minimum: int, maximum: int, rate_window_s: float) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.target = maximum
        """Workers wanted at present, between ``minimum`` and ``maximum``."""
        self.preemptions = 0
        self.failures = 0
        self.running_before: dict[WorkerId, int] = {}
        """Attempts of instances that ran under an earlier master, until they are found."""
        self.closed = False
        """The job is over: no worker is wanted any more."""
        self._rate_window_s = rate_window_s
        self._workers: dict[WorkerId, Worker] = {}

    def __iter__(self) -> Iterator[Worker]:
        """Yield every worker, oldest first."""
        return iter(self._workers.values())

    def find(self, worker_id: WorkerId) -> Worker | None:
        """Return a worker by its number; None if it never had an instance."""
        return self._workers.get(worker_id)

    def find_or_add(self, worker_id: WorkerId, now: float) -> Worker:
        """Return a worker by its number; a new one has no instance yet."""
        worker = self._workers.get(worker_id)
        if worker is None:
            worker = Worker(worker_id, Rate(self._rate_window_s, now), since=now)
            self._workers[worker_id] = worker
        return worker

    # --- questions -------------------------------------------------------------------------

    def wants(self, worker: Worker) -> bool:
        """Return whether the worker should have an instance."""
        return not self.closed and worker.id < self.target

    def in_state(self, state: WorkerState) -> list[Worker]:
        """Return the workers in one state."""
        return [worker for worker in self if worker.state is state]

    @property
    def all_gone(self) -> bool:
        """Whether no worker has an instance."""
        return all(worker.state is WorkerState.GONE for worker in self)

    def is_alone(self, worker_id: WorkerId) -> bool:
        """Return whether no other worker could take a task now or soon."""
        return not any(worker.alive and worker.id != worker_id for worker in self)

    def may_hold(self, worker_id: WorkerId) -> bool:
        """Return whether a worker has an instance that may hold leases: ready, or leaving."""
        worker = self.find(worker_id)
        return worker is not None and worker.state in (WorkerState.READY, WorkerState.LEAVING)

    def time_use(self, holders: Set[WorkerId]) -> Counter[TimeCategory]:
        """Count the wanted workers by what their time goes into at the moment.

        Args:
            holders: workers that hold a task.
        """
        use: Counter[TimeCategory] = Counter()
        for number in range(self.target):
            worker = self.find(WorkerId(number))
            use[worker.time_use(worker.id in holders) if worker else TimeCategory.STARTING] += 1
        return use

    def views(
        self, held: Callable[[WorkerId], TaskKey | None], now: float
    ) -> tuple[WorkerView, ...]:
        """Return a view of every worker; ``held`` names the task that a worker works on."""
        return tuple(worker.view(held(worker.id), now) for worker in self)

    # --- work ------------------------------------------------------------------------------

    def work_done(self, worker_id: WorkerId, records: int, steps: int, now: float) -> Worker:
        """Credit a worker that holds a lease with records and steps."""
        worker = self._workers[worker_id]
        worker.last_message_at = now
        worker.productive = True
        worker.consecutive_failures = 0
        worker.records += records
        worker.steps += steps
        worker.rate.add(records, now)
        return worker

    # --- snapshots -------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what survives the master as JSON-able values; instances are found anew."""
        return {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "preemptions": self.preemptions,
            "failures": self.failures,
        }

    def restore(self, saved: Mapping[str, Any], *, scaled: bool) -> None:
        """Take over what ``snapshot`` saved; with ``scaled``, the wanted range too."""
        if scaled:
            self.minimum, self.maximum = saved["minimum"], saved["maximum"]
            self.target = self.maximum
        self.preemptions, self.failures = saved["preemptions"], saved["failures"]

    def check_invariants(self) -> None:
        """Raise AssertionError when a worker's state contradicts itself."""
        for worker in self:
            worker.check_invariants()
            assert worker.restart_at is None or self.wants(worker), worker
