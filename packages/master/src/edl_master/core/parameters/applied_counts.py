"""Counts of applied minibatches by task, and the tokens that may push."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from edl_master.core.identifiers import AppliedCount, TaskKey, TaskType, Token, WorkerId


class PushVerdict(Enum):
    """Relation of a push to the count of its task."""

    DUE = auto()
    ALREADY_APPLIED = auto()
    OUT_OF_ORDER = auto()
    REFUSED = auto()


@dataclass(slots=True)
class _Entry:
    token: Token
    live: bool
    applied: int
    records: int
    holder: WorkerId | None = None  # of the lease, as far as this master knows


class AppliedCounts:
    """The applied minibatches of each open task, and the token of its lease.

    The counts survive leases, so that the next holder begins where the last one ended; tokens
    only grow, so that an earlier holder can never push again.
    """

    def __init__(self) -> None:
        self._entries: dict[TaskKey, _Entry] = {}

    def grant(self, task: TaskKey, token: Token, holder: WorkerId | None = None) -> int:
        """Make ``token`` the only one that may push for ``task``; return the task's count.

        Args:
            holder: the only worker that may use it; None: any.

        Raises:
            ValueError: the token is not newer than one that the task had before.
        """
        entry = self._entries.get(task)
        if entry is None:
            entry = self._entries[task] = _Entry(token, True, 0, 0)
        elif token < entry.token or (token == entry.token and not entry.live):
            raise ValueError(f"task {task}: token {token} is not newer than {entry.token}")
        entry.token, entry.live, entry.holder = token, True, holder
        return entry.applied

    def is_live(self, task: TaskKey, token: Token, worker: WorkerId | None = None) -> bool:
        """Return whether ``token`` may push for ``task``.

        Args:
            worker: who names the token; None: the holder of the lease.
        """
        entry = self._entries.get(task)
        if entry is None or not entry.live or entry.token != token:
            return False
        # Tokens are not secret: they are consecutive numbers.
        return None in (entry.holder, worker) or entry.holder == worker

    def has_lease(self, task: TaskKey) -> bool:
        """Return whether a worker may push for ``task``."""
        entry = self._entries.get(task)
        return entry is not None and entry.live

    def revoke(self, task: TaskKey, token: Token) -> bool:
        """Reject pushes for ``task`` until it is granted again; tell whether they were allowed."""
        if not self.is_live(task, token):
            return False
        self._entries[task].live = False
        return True

    def revoke_all(self) -> None:
        """Reject pushes for every task until it is granted again."""
        for entry in self._entries.values():
            entry.live = False

    def close(self, task: TaskKey) -> None:
        """Forget a task; an unknown one, too."""
        self._entries.pop(task, None)

    def verdict(
        self,
        task: TaskKey,
        token: Token,
        minibatch: int,
        minibatches: int = 1,
        worker: WorkerId | None = None,
    ) -> PushVerdict:
        """Judge a push of minibatches from this index in the task on: all of them or none."""
        if not self.is_live(task, token, worker):
            return PushVerdict.REFUSED
        applied = self._entries[task].applied
        if minibatch + minibatches <= applied:
            return PushVerdict.ALREADY_APPLIED
        return PushVerdict.DUE if minibatch == applied else PushVerdict.OUT_OF_ORDER

    def advance(self, task: TaskKey, minibatches: int, records: int) -> None:
        """Count more minibatches of an open task, and their records."""
        entry = self._entries[task]
        entry.applied += minibatches
        entry.records += records

    def counts(self) -> dict[TaskKey, AppliedCount]:
        """Return the count of each open task."""
        entries = self._entries.items()
        return {task: AppliedCount(entry.applied, entry.records) for task, entry in entries}

    def describe(self) -> list[list[Any]]:
        """Return all entries as plain values; ``restore`` reads them."""
        return [
            [
                *(str(task.type), task.round, task.number),
                *(entry.token, entry.live, entry.applied, entry.records),
            ]
            for task, entry in self._entries.items()
        ]

    @classmethod
    def counts_of_description(cls, entries: Iterable[Sequence[Any]]) -> dict[TaskKey, AppliedCount]:
        """Return the count of each open task, as ``describe`` returned it."""
        counts = cls()
        counts.restore(entries)
        return counts.counts()

    def restore(self, described: Iterable[Sequence[Any]]) -> None:
        for kind, round_, number, token, live, applied, records in described:
            task = TaskKey(TaskType(kind), round_, number)
            self._entries[task] = _Entry(Token(token), live, applied, records)
