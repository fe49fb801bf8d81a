"""Steps that were made under an earlier master, as a new one takes them into its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from edl_master.core.effects import Effect, LogEvent
from edl_master.core.identifiers import TaskKey, TaskType
from edl_master.core.ledger import Ledger
from edl_master.core.progress import Progress
from edl_master.core.replica_events import ReplicaStep
from edl_master.core.tasks import Round
from edl_master.core.workflow import Workflow

MAX_UNTOLD = 10_000
"""Tasks that were leased without a step that tells of them; with more, the steps are refused."""


class InheritedSteps:
    """Prepares a job for these steps: their tasks are open, as after the leases of that time.

    Args:
        ledger: of the job, at the position of the snapshot.
        workflow: opens rounds.
        progress: of the job.
        emit: takes effects.
    """

    def __init__(
        self,
        ledger: Ledger,
        workflow: Workflow,
        progress: Progress,
        emit: Callable[[Effect], None],
    ) -> None:
        self._ledger = ledger
        self._workflow = workflow
        self._progress = progress
        self._emit = emit

    def take(self, steps: Sequence[ReplicaStep]) -> bool:
        """Open the tasks of these steps; False, and nothing changes, if the steps cannot follow.

        A minibatch may be missing or be there twice, or a task may be of a round that begins only
        after something that is not known any more, such as a decision of callbacks.
        """
        counts: dict[TaskKey, int] = {}
        new: dict[int, set[int]] = {}
        for claim in (claim for step in steps for claim in step):
            key = claim.lease.task
            if (task := self._ledger.find(key)) is None:
                new.setdefault(key.round, set()).add(key.number)
            count = counts.get(key, task.minibatches if task else 0)
            is_next = claim.minibatch == count and claim.minibatches > 0
            if key.type is not TaskType.TRAINING or not is_next:
                return False
            counts[key] = count + claim.minibatches
        positions = self._find_positions(new)
        if positions is None:
            return False
        for number, position in positions.items():
            self._workflow.open_rounds(number + 1)
            self._ledger.open_tasks(self._find(number), position)
        if steps:
            self._keep(len(steps))
        return True

    def _find_positions(self, new: Mapping[int, Set[int]]) -> dict[int, int] | None:
        """Return the positions of the rounds up to which tasks were leased; None: they were not."""
        unopened = [n for n in sorted(new) if self._find_open(n) is None]
        if unopened != list(self._workflow.openable[: len(unopened)]):
            return None
        positions, untold = {}, MAX_UNTOLD
        for number, tasks in sorted(new.items()):
            round_ = self._find(number)
            if (position := round_.find_new(tasks, untold)) is None:
                return None
            untold -= position - round_.cursor - len(tasks)
            positions[number] = position
        return positions

    def _keep(self, steps: int) -> None:
        """Take back what was counted as work that is done again."""
        self._ledger.keep_undone()
        self._progress.keep_undone()
        line = f"Workers still hold what was trained after the snapshot: {steps} steps."
        self._emit(LogEvent("StepsKept", line, facts={"steps": str(steps)}))

    def _find(self, number: int) -> Round:
        """Return an open round, or one at its beginning."""
        return self._find_open(number) or self._workflow.make_round(number)

    def _find_open(self, number: int) -> Round | None:
        return self._ledger.find_round(TaskType.TRAINING, number)
