"""Dead letters: the tasks that the job continued without, or failed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from edl_master.core.effects import Range
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskKey, TaskType
from edl_master.core.tasks import OpenTask
from edl_master.core.view import DeadLetter, dead_letter_from_json, dead_letter_to_json

MOST_DEAD_LETTERS_KEPT = 100
"""In detail; beyond them they are counted. Each is an event of its own anyway."""

MOST_DEAD_TASKS_KEPT = 100
"""Of training; reports of their minibatches are late by a few tasks at most."""


class DeadLetters:
    """The first dead letters in detail, and the training tasks that died last.

    A minibatch may be in the model while its report is still on its way to the job. If its task
    dies meanwhile, the report corrects the dead letter. If the report dies with the master, the
    next master finds the minibatch in the counts of the parameters, which therefore keep those of
    the tasks that died last.

    Attributes:
        letters: the first hundred, in order.
    """

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self._tasks: dict[TaskKey, OpenTask] = {}  # the oldest first

    def add(self, task: OpenTask, failure: Failure) -> None:
        """Add a task and its failure."""
        if len(self.letters) < MOST_DEAD_LETTERS_KEPT:
            letter = DeadLetter(task.key, task.records, failure, task.records_applied)
            self.letters.append(letter)

    def keep(self, task: OpenTask) -> TaskKey | None:
        """Expect late reports of a dead training task.

        Returns:
            The task that is not kept any more in its place: the parameters may forget its count.
        """
        self._tasks[task.key] = task
        if len(self._tasks) <= MOST_DEAD_TASKS_KEPT:
            return None
        oldest = next(iter(self._tasks))
        del self._tasks[oldest]
        return oldest

    def find(self, key: TaskKey) -> OpenTask | None:
        """Return a dead training task by its key, or None if it is not one of the last."""
        return self._tasks.get(key)

    def advance(self, task: OpenTask, records: int, minibatches: int) -> int:
        """Note minibatches that were applied before their task died, and reported since.

        Returns:
            How many more records of the task are in the model than was known.
        """
        before = task.records_applied
        task.minibatches += minibatches
        task.records_applied = min(before + records, task.length)
        for place, letter in enumerate(self.letters):
            if letter.task == task.key:
                self.letters[place] = replace(letter, records_trained=task.records_applied)
        return task.records_applied - before

    def snapshot(self) -> dict[str, Any]:
        """Return the letters and the tasks as JSON-able values."""
        return {
            "dead_letters": [dead_letter_to_json(letter) for letter in self.letters],
            "dead_tasks": [
                {
                    "round": key.round,
                    "number": key.number,
                    "records": asdict(task.records) if task.records else None,
                    "minibatches": task.minibatches,
                    "records_applied": task.records_applied,
                }
                for key, task in self._tasks.items()
            ],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` returned, or an earlier edl, which kept no tasks."""
        self.letters = [dead_letter_from_json(letter) for letter in saved["dead_letters"]]
        for entry in saved.get("dead_tasks", ()):
            key = TaskKey(TaskType.TRAINING, entry["round"], entry["number"])
            records = Range(**entry["records"]) if entry["records"] else None
            self._tasks[key] = OpenTask(
                key,
                records,
                minibatches=entry["minibatches"],
                records_applied=entry["records_applied"],
            )
