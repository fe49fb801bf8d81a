"""The ledger: the tasks to do, their holders, and what has been counted.

The ledger knows rounds and leases. It does not know whether workers live, or what a round is for:
the job's workflow opens rounds, and learns from ``is_open`` that they are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from edl_master.core.failure import Failure
from edl_master.core.identifiers import AppliedCount, TaskKey, TaskType, WorkerId
from edl_master.core.leases import Lease, Leases
from edl_master.core.tasks import OpenTask, Round
from edl_master.core.view import DeadLetter, TaskCounts, dead_letter_from_json, dead_letter_to_json

MAX_DEAD_LETTERS = 2000
"""Dead letters that are kept; more are only counted, and each is an event anyway."""

_MAX_TRACEBACKS = 100
"""Dead letters that are kept with the traceback of their failure."""


class Ledger:
    """All open rounds and leases of a job, and the counts of what is closed."""

    def __init__(self, lease_ttl_s: float) -> None:
        self.leases = Leases(lease_ttl_s)
        self._dead_letters: list[DeadLetter] = []
        self.records_replayed = 0
        self._undone = 0
        self.trains = True
        """Whether training tasks are leased."""
        self._rounds: dict[tuple[TaskType, int], Round] = {}
        self._closed: dict[TaskType, Counter[str]] = {type_: Counter() for type_ in TaskType}
        # The round of each type that was complete last: it may have to be done again.
        self._latest: dict[TaskType, tuple[int, Counter[str]]] = {}
        self._returns = 0
        # Open tasks that no worker holds, in the order of their return: few, and needed for every
        # lease.
        self._waiting: dict[TaskKey, OpenTask] = {}

    # --- rounds ----------------------------------------------------------------------------

    def open_round(self, round_: Round) -> None:
        """Make the tasks of a round leasable; a round without tasks is complete at once."""
        if round_.count:
            self._rounds[(round_.type, round_.number)] = round_

    def is_open(self, type_: TaskType, number: int) -> bool:
        """Return whether a round that was opened still has a task that is not done."""
        return (type_, number) in self._rounds

    def is_settled(self, key: TaskKey) -> bool:
        """Return whether a task of a round that was opened is done or dead."""
        round_ = self._rounds.get((key.type, key.round))
        return round_ is None or round_.is_settled(key.number)

    def find_round(self, type_: TaskType, number: int) -> Round | None:
        """Return an open round."""
        return self._rounds.get((type_, number))

    def open_tasks(self, round_: Round, position: int) -> None:
        """Open the new tasks of an open round up to a position of its order, which were leased."""
        while round_.cursor < position:
            task = round_.take_new()
            task.leases = 1
            self._returns += 1
            task.returned = self._returns
            self._waiting[task.key] = task

    def has_leasable(self, type_: TaskType, number: int) -> bool:
        """Return whether a round has a task that no worker holds."""
        round_ = self._rounds.get((type_, number))
        return round_ is not None and (round_.has_new or bool(self._find_returned([round_])))

    # --- leases ----------------------------------------------------------------------------

    def lease(
        self, worker: WorkerId, now: float, *, alone: bool, trains: bool = True
    ) -> Lease | None:
        """Give a worker the most urgent task, or None when nothing is left for it.

        Tasks that other work waits for (evaluation, callbacks, export) go before training.
        Then come returned tasks, the oldest first, then new ones.

        Args:
            worker: who asks.
            now: seconds.
            alone: no other worker is alive, so a task that failed on this one may be leased
                to it again.
            trains: whether it may be a training task.
        """
        training = [r for r in self._rounds.values() if r.type is TaskType.TRAINING]
        urgent = [r for r in self._rounds.values() if r.type is not TaskType.TRAINING]
        task = self._pick(urgent, worker, now, alone)
        if task is None and self.trains and trains:
            task = self._pick(training, worker, now, alone)
        if task is None:
            return None
        self._waiting.pop(task.key, None)
        if task.leases:
            self._round(task).retried += 1
        task.leases += 1
        return self.leases.grant(task, worker, now)

    def _pick(
        self, rounds: list[Round], worker: WorkerId, now: float, alone: bool
    ) -> OpenTask | None:
        for task in self._find_returned(rounds):
            if alone or task.not_for != worker or now >= task.not_for_until:
                return task
        for round_ in rounds:
            if round_.has_new:
                return round_.take_new()
        return None

    def _find_returned(self, rounds: Iterable[Round]) -> list[OpenTask]:
        """Return open tasks that no worker holds, in the order of their return."""
        among = {(round_.type, round_.number) for round_ in rounds} if self._waiting else ()
        return [t for t in self._waiting.values() if (t.key.type, t.key.round) in among]

    def take_back(self, lease: Lease, *, redo: bool) -> None:
        """End a lease; its task waits for another holder.

        Args:
            lease: a current lease.
            redo: the holder may have computed something that will be computed again.
        """
        self.leases.drop(lease)
        self._returns += 1
        lease.task.returned = self._returns
        self._waiting[lease.task.key] = lease.task
        lease.task.redo = lease.task.redo or redo

    # --- work done --------------------------------------------------------------------------

    def advance(self, task: OpenTask, records: int, minibatches: int = 1) -> None:
        """Note that minibatches of an open training task have been applied; in any order."""
        task.minibatches += minibatches
        task.records_applied = min(task.records_applied + records, task.length)
        task.examples_applied += records
        task.deaths = 0
        if task.redo:
            task.redo = False
            self.records_replayed += records

    def reconcile(self, applied: Mapping[TaskKey, AppliedCount]) -> int:
        """Take over counts of the plane that are ahead of these, for open tasks.

        Returns:
            How many minibatches were not reported.
        """
        tasks = ((self.find(key), count) for key, count in applied.items())
        return sum(task.take_over(count) for task, count in tasks if task is not None)

    def count_undone(self, trained: int, replayed: int) -> None:
        """Count the training records after the restored position: all are computed again.

        Args:
            trained: records of applied minibatches before the restore.
            replayed: records computed again by then.
        """
        self._undone = max(0, trained - self.records_done(TaskType.TRAINING))
        self.records_replayed = max(self.records_replayed, replayed) + self._undone

    def keep_undone(self) -> None:
        """Take back ``count_undone``: workers still hold what was trained."""
        self.records_replayed -= self._undone
        self._undone = 0

    def find(self, key: TaskKey) -> OpenTask | None:
        """Return an open task by its key, or None when it is closed or was never opened."""
        round_ = self._rounds.get((key.type, key.round))
        return round_.open.get(key.number) if round_ else None

    def close(self, task: OpenTask, *, dead: bool = False, examples: int = 0) -> None:
        """Forget a task that is done or dead, and its round with the last task.

        Args:
            examples: what the input function has made of its records.
        """
        lease = self.leases.on(task.key)
        if lease is not None:
            self.leases.drop(lease)
        self._waiting.pop(task.key, None)
        if task.redo and not dead:
            self.records_replayed += task.length - task.records_applied
        self._round(task).close(task, dead=dead, examples=examples)
        self.close_round(task.key.type, task.key.round)

    def close_round(self, type_: TaskType, number: int) -> None:
        """Forget a round if it is complete; nothing if it is not open."""
        round_ = self._rounds.get((type_, number))
        if round_ is not None and round_.complete:
            del self._rounds[(round_.type, round_.number)]
            counts = Counter(
                done=round_.done,
                dead=round_.dead,
                retried=round_.retried,
                records=round_.records_done,
                examples_of=round_.examples_of,
                examples=round_.examples,
            )
            self._closed[round_.type] += counts
            self._latest[round_.type] = (round_.number, counts)

    def add_dead_letter(self, task: OpenTask, failure: Failure) -> None:
        """Add a task and its failure to the dead letters."""
        if len(self._dead_letters) < MAX_DEAD_LETTERS:
            if len(self._dead_letters) >= _MAX_TRACEBACKS:
                failure = replace(failure, detail="")
            letter = DeadLetter(task.key, task.records, failure, task.records_applied)
            self._dead_letters.append(letter)

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The first ``MAX_DEAD_LETTERS``, with what is in the model of each by now.

        The task that a job fails by stays open: minibatches of it may still be reported.
        """
        letters = ((letter, self.find(letter.task)) for letter in self._dead_letters)
        return tuple(
            replace(letter, records_trained=task.records_applied) if task else letter
            for letter, task in letters
        )

    def place(self, task: OpenTask) -> str:
        """Say in words what an open task is."""
        return self._round(task).place(task)

    def _round(self, task: OpenTask) -> Round:
        return self._rounds[(task.key.type, task.key.round)]

    # --- counts ----------------------------------------------------------------------------

    def counts(self, type_: TaskType) -> TaskCounts:
        """Count the tasks of one type in all rounds opened so far."""
        rounds = [r for r in self._rounds.values() if r.type is type_]
        leased = sum(1 for lease in self.leases if lease.task.key.type is type_)
        closed = self._closed[type_]
        return TaskCounts(
            pending=sum(r.count - r.cursor + len(r.open) for r in rounds) - leased,
            leased=leased,
            done=closed["done"] + sum(r.done for r in rounds),
            retried=closed["retried"] + sum(r.retried for r in rounds),
            dead=closed["dead"] + sum(r.dead for r in rounds),
        )

    def records_done(self, type_: TaskType) -> int:
        """Count the done records of one type, each once per round.

        Those of done tasks, and those that were applied of open and of dead ones.
        """
        rounds = [r for r in self._rounds.values() if r.type is type_]
        applied = sum(task.records_applied for r in rounds for task in r.open.values())
        return self._closed[type_]["records"] + sum(r.records_done for r in rounds) + applied

    def examples(self, type_: TaskType) -> tuple[int, int]:
        """Return the examples that the done tasks made of their records, and those records."""
        rounds = [r for r in self._rounds.values() if r.type is type_]
        closed = self._closed[type_]
        examples = closed["examples"] + sum(r.examples for r in rounds)
        return examples, closed["examples_of"] + sum(r.examples_of for r in rounds)

    # --- snapshots -------------------------------------------------------------------------

    def snapshot(
        self, types: Iterable[TaskType], repeated: Iterable[tuple[TaskType, int]] = ()
    ) -> dict[str, Any]:
        """Return the position of all rounds of these types, and the counts, as JSON-able values.

        Leased tasks are saved as open ones: after a restore they are leased again. So is a task
        that the job has failed by; it is no dead letter then.

        Args:
            types: of the rounds that survive the master.
            repeated: rounds that the next master repeats: if complete, they do not count.
        """
        kept = set(types)
        closed = {type_: Counter(counts) for type_, counts in self._closed.items()}
        for type_, number in repeated:
            latest, counts = self._latest.get(type_, (-1, Counter[str]()))
            if latest == number:
                closed[type_] -= counts
        return {
            "last_token": self.leases.last_token,
            "records_replayed": self.records_replayed,
            "closed": {type_: dict(closed[type_]) for type_ in TaskType},
            "rounds": [r.snapshot() for r in self._rounds.values() if r.type in kept],
            "dead_letters": [
                dead_letter_to_json(letter)
                for letter in self._dead_letters
                if self.find(letter.task) is None
            ],
        }

    def restore(self, saved: Mapping[str, Any], rounds: Iterable[Round]) -> None:
        """Take over what ``snapshot`` saved; ``rounds`` are its rounds, made anew."""
        self.leases.last_token = saved["last_token"]
        self.records_replayed = saved["records_replayed"]
        for type_, counts in saved["closed"].items():
            self._closed[TaskType(type_)].update(counts)
        self._dead_letters = [dead_letter_from_json(letter) for letter in saved["dead_letters"]]
        for round_ in rounds:
            self.open_round(round_)
        tasks = (task for round_ in self._rounds.values() for task in round_.open.values())
        for task in sorted(tasks, key=lambda task: task.returned):
            self._returns = max(self._returns, task.returned)
            self._waiting[task.key] = task

    def check_invariants(self) -> None:
        """Raise AssertionError when rounds and leases contradict each other."""
        for lease in self.leases:
            assert self.find(lease.task.key) is lease.task, f"{lease.task.key} is held, not open"
            assert lease.token <= self.leases.last_token
        self.leases.check_invariants()
        tasks = (task for round_ in self._rounds.values() for task in round_.open.values())
        free = {task.key for task in tasks if self.leases.on(task.key) is None}
        assert free == self._waiting.keys(), f"{free} are free, {self._waiting.keys()} wait"
        order = [task.returned for task in self._waiting.values()]
        assert order == sorted(order), "the one returned first is not in front"
        for round_ in self._rounds.values():
            assert not round_.complete, f"{round_.type} {round_.number} is complete, yet open"
            assert round_.cursor == round_.done + round_.dead + len(round_.open), round_
            for number, task in round_.open.items():
                assert task.key.number == number
                assert task.leases > 0
