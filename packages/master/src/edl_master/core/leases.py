"""Leases: which worker holds which task until when. Only this module decides that.

Tokens grow and are never used twice, so a holder that has lost its lease is always
distinguishable from the present one.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from edl_master.core.identifiers import HeldLease, TaskKey, Token, WorkerId
from edl_master.core.tasks import OpenTask


@dataclass(slots=True)
class Lease:
    """A task that a worker holds."""

    token: Token
    task: OpenTask
    worker: WorkerId
    deadline: float

    @property
    def held(self) -> HeldLease:
        """The lease as its holder names it."""
        return HeldLease(self.task.key, self.token)


class Leases:
    """All current leases; as many as the workers hold, however many tasks there are."""

    def __init__(self, ttl_s: float, last_token: int = 0) -> None:
        self._ttl_s = ttl_s
        self.last_token = last_token
        self._by_token: dict[Token, Lease] = {}
        self._by_task: dict[TaskKey, Lease] = {}
        self._by_worker: dict[WorkerId, dict[Token, Lease]] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def grant(self, task: OpenTask, worker: WorkerId, now: float) -> Lease:
        """Give a task that no worker holds to a worker, under a new token."""
        self.last_token += 1
        lease = Lease(Token(self.last_token), task, worker, now + self._ttl_s)
        self._by_token[lease.token] = lease
        self._by_task[task.key] = lease
        self._by_worker.setdefault(worker, {})[lease.token] = lease
        return lease

    def current(self, worker: WorkerId, held: HeldLease) -> Lease | None:
        """Return the lease that the worker names, unless it is lost or another's."""
        lease = self._by_token.get(held.token)
        if lease is None or lease.worker != worker or lease.task.key != held.task:
            return None
        return lease

    def on(self, task: TaskKey) -> Lease | None:
        """Return the lease on a task, if a worker holds it."""
        return self._by_task.get(task)

    def of(self, worker: WorkerId) -> list[Lease]:
        """Return a worker's leases, the one it works on first: tasks are done as granted."""
        return list(self._by_worker.get(worker, {}).values())

    def is_begun(self, lease: Lease) -> bool:
        """Return whether its holder works on it, and not on one that was granted before."""
        return self.of(lease.worker)[0] is lease

    @property
    def holders(self) -> Set[WorkerId]:
        """The workers that hold anything."""
        return self._by_worker.keys()

    def renew(self, lease: Lease, now: float) -> None:
        """Count the time to live from now."""
        lease.deadline = now + self._ttl_s

    def find_expired(self, now: float) -> list[Lease]:
        """Return the leases whose holders let the deadline pass."""
        return [lease for lease in self._by_token.values() if lease.deadline < now]

    def extend_deadlines(self, pause_s: float) -> None:
        """Do not count time in which nothing could be renewed."""
        for lease in self:
            lease.deadline += pause_s

    def drop(self, lease: Lease) -> None:
        """End a lease; its token is worth nothing from now on."""
        del self._by_token[lease.token]
        del self._by_task[lease.task.key]
        own = self._by_worker[lease.worker]
        del own[lease.token]
        if not own:
            del self._by_worker[lease.worker]

    def __iter__(self) -> Iterator[Lease]:
        """Yield every lease, oldest first."""
        return iter(self._by_token.values())

    def check_invariants(self) -> None:
        """Raise AssertionError when the views of the same leases disagree."""
        assert len(self._by_token) == len(self._by_task)
        assert len(self._by_token) == sum(len(own) for own in self._by_worker.values())
        for token, lease in self._by_token.items():
            assert token == lease.token <= self.last_token
            assert self._by_task[lease.task.key] is lease
            assert self._by_worker[lease.worker][token] is lease
