"""How far this worker has come as a member of the replica group: decisions without any threads."""

from __future__ import annotations

from collections.abc import Sequence

from edl_worker.core.kept_steps import KeptSteps
from edl_worker.core.replicas import (
    Claim,
    Generation,
    Note,
    ReplicaStep,
    Report,
    ReportAnswer,
    VersionOrigin,
)
from edl_worker.core.tasks import Lease, OutOfOrderError, TaskLostError


class MemberProgress:
    """The version of this worker's values, and the steps that made it.

    Attributes:
        generation: the last one that this worker has entered; None: none of this master's.
        ended: the master has ended the generation.
        lost: this worker is no member any more.
        stopped: this worker makes no further step in it.
        kept: the last steps of the values, also if these are of a former master.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self.kept = KeptSteps()
        self.lost = False
        self.forget()

    def forget(self) -> None:
        """Begin anew: all generations are those of a former master; ``kept`` has the values'."""
        if self.lost:
            self.kept.forget()
        self._version: int | None = None
        self.generation: Generation | None = None
        self.ended = self.lost = self.stopped = self._tells_all = False
        self._unreachable: tuple[int | None, str] = None, ""
        self._counts: dict[int, int] = {}
        self._steps: list[ReplicaStep] = []
        self._compute_s: list[float] = []

    @property
    def version(self) -> int | None:
        """The version of the values; None: they are those of no version."""
        return None if self.lost else self._version

    # --- generations -----------------------------------------------------------------------

    @property
    def is_member(self) -> bool:
        """Whether this worker is in a generation in which it may make steps."""
        return self.generation is not None and not self.stopped

    @property
    def number(self) -> int:
        """The number of the last generation; 0 before the first one."""
        return 0 if self.generation is None else self.generation.number

    @property
    def size(self) -> int:
        """The number of members of the generation; 1 without one."""
        return 1 if self.generation is None else len(self.generation.members)

    def enter(self, generation: Generation) -> None:
        """Begin a generation; until ``on_values`` the values are the old ones."""
        if self.generation is None and self._worker in generation.sources:
            self._version = self.kept.version
        if self._worker not in generation.sources:
            self._version = self.version
        elif self._version != generation.version:
            raise ValueError(f"the values are {self._version}, not {generation.version}")
        self.generation = generation
        self.ended = self.lost = self.stopped = self._tells_all = False
        self._unreachable = None, ""
        self._counts = dict(generation.counts)
        self._steps.clear()

    def on_values(self) -> None:
        """Record that the values are those of the generation's version."""
        assert self.generation is not None, "values come in a generation"
        if self._worker not in self.generation.sources:
            self.kept.begin(self.generation.version, self.generation.origin)
        if self.generation.finish:
            self.kept.forget()  # the values become others, without a step
        self._version = self.generation.version

    def stop(self, unreachable: int | None = None, cause: str = "") -> None:
        """Make no further step in this generation.

        Args:
            unreachable: the member because of which there is none.
            cause: why it cannot be reached.
        """
        self.stopped, self._unreachable = True, (unreachable, cause)

    # --- tasks -----------------------------------------------------------------------------

    def find_position(self, lease: Lease, reached: int) -> int:
        """Return the next minibatch of a task, of which the caller has kept those from ``reached``.

        Raises:
            TaskLostError: the lease is not valid in this generation.
            OutOfOrderError: minibatches are due that the caller has dropped.
        """
        assert self.generation is not None, "tasks are trained in a generation"
        count = self._counts.get(lease.token)
        if count is None:
            if lease.token < self.generation.next_token:
                raise TaskLostError
            count = lease.skip_minibatches
        if count < reached:
            raise OutOfOrderError
        return count

    # --- steps -----------------------------------------------------------------------------

    def make_note(self, claim: Claim | None) -> Note:
        """Return what to tell the other members in the next step."""
        return Note(claim, self.ended)

    def on_step(self, notes: Sequence[Note]) -> None:
        """Record that the values are one version further.

        Args:
            notes: of all members, by rank.
        """
        assert self.generation is not None, "steps are made in a generation"
        assert self._version is not None, "there were values"
        members = self.generation.members
        claims = {
            worker: note.claim
            for worker, note in zip(members, notes, strict=True)
            if note.claim is not None
        }
        self._version += 1
        step = ReplicaStep(self._version, claims)
        self._steps.append(step)
        self.kept.add(step, VersionOrigin(self.generation.incarnation, self.generation.number))
        own = claims.get(self._worker)
        if own is not None:
            self._counts[own.lease.token] = own.minibatch + own.minibatches

    def on_computed(self, seconds: float) -> None:
        """Record how long a gradient took."""
        self._compute_s.append(seconds)

    # --- reports ---------------------------------------------------------------------------

    def take_report(self) -> Report | None:
        """Return what the master should know; None: this worker is no member."""
        if self.generation is None or self.lost:
            return None
        seconds, self._compute_s = self._compute_s, []
        mean = sum(seconds) / len(seconds) if seconds else 0.0
        number, steps = self.generation.number, tuple(self._tell(step) for step in self._steps)
        return Report(
            *(number, self.version, steps, self.stopped, *self._unreachable, mean, self._tells_all)
        )

    def _tell(self, step: ReplicaStep) -> ReplicaStep:
        """Return what the master should know of a step: what this member has added, or all."""
        if self._tells_all:
            return step
        own = {worker: claim for worker, claim in step.claims.items() if worker == self._worker}
        return ReplicaStep(step.version, own)

    def on_answer(self, report: Report, answer: ReportAnswer) -> None:
        """Act on the answer to a report; that of an earlier generation changes nothing."""
        if self.generation is None or report.generation != self.generation.number:
            return
        self._steps = [step for step in self._steps if step.version > answer.counted]
        if answer.saved is not None:
            self.kept.forget_until(answer.saved)
        self.ended = self.ended or answer.ended or answer.lost
        self.lost = self.lost or answer.lost
        self._tells_all = self._tells_all or answer.all_wanted
