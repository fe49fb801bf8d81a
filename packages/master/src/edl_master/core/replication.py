"""Replicated training in a job: the group of its workers, and what waits for the group.

What the rest of the job asks of the parameters (freeze them, save them) waits until a member has
sent its values to the store. What it asks about a task whose holder is gone waits until the steps
of that holder are decided.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from edl_master.core.effects import (
    ChangeLearningRate,
    CountApplied,
    Effect,
    FreezeParameters,
    KeepBest,
    RestoreBest,
    RevokeLease,
    WaitForWork,
    WriteCheckpoint,
    WriteSnapshot,
)
from edl_master.core.events import MemberUnreachable, MinibatchApplied, TaskCompleted
from edl_master.core.generations import (
    BeginGeneration,
    CountStep,
    EndGeneration,
    ExpelMember,
    Generation,
    GroupEffect,
    LoseValues,
    NotAMember,
    ReleaseLeases,
    SaveValues,
    ValuesSaved,
    VersionOrigin,
)
from edl_master.core.identifiers import HeldLease, TaskKey, TaskType, Token, Version, WorkerId
from edl_master.core.inherited_steps import InheritedSteps
from edl_master.core.instance_reports import InstanceReports
from edl_master.core.ledger import Ledger
from edl_master.core.replica_events import (
    CountReplicaStep,
    GenerationBegun,
    GenerationRequested,
    GroupLeft,
    ReplicaClaim,
    ReplicaEvent,
    ReplicaStep,
    RollBack,
    StepsCounted,
    StepsReported,
    StepsWanted,
    StoreValues,
    ValuesAccepted,
    ValuesRequested,
    ValuesSent,
)
from edl_master.core.replica_group import ReplicaGroup
from edl_master.core.save_schedule import SnapshotSchedule
from edl_master.core.succession import Succession
from edl_master.core.worker import Worker
from edl_master.core.worker_pool import WorkerPool
from edl_master.core.workflow import FINAL

_WAIT_S = 0.2


class Replication:
    """The replicated training of a job; without effect in a job that trains otherwise.

    Args:
        is_on: whether the job is known to train in this way.
        incarnation: of the master.
        ledger: of the job.
        steps: takes over what was trained under an earlier master.
        snapshots: knows the last one.
        emit: takes effects that need not wait.
    """

    def __init__(
        self,
        *,
        is_on: bool,
        incarnation: str,
        ledger: Ledger,
        steps: InheritedSteps,
        snapshots: SnapshotSchedule,
        emit: Callable[[Effect], None],
    ) -> None:
        self.is_on = is_on
        self._incarnation = incarnation
        self._ledger = ledger
        self._steps = steps
        self._snapshots = snapshots
        self._emit = emit
        self._group: ReplicaGroup[ReplicaClaim] = ReplicaGroup(Version(0), None, incarnation)
        self._succession: Succession | None = None  # until the first generation begins
        self._next_token = Token(1)
        self._learning_rate: float | None = None
        self._has_restored = False  # the best values are the last ones
        self._unsaved: list[Effect] = []  # wait for values in the store
        self._unfinished: list[Effect] = []  # wait for the values of a finished training there
        self._unsettled: list[Effect] = []  # wait for the steps of workers that are gone
        self._applied: deque[MinibatchApplied] = deque()
        self._expelled: list[MemberUnreachable] = []
        self._causes: dict[WorkerId, str] = {}  # why a worker could not reach another one
        nothing: Counter[TaskKey] = Counter()
        self._open = (0, Version(0)), nothing  # of these steps, see ``_count_open``
        self._completions: dict[TaskKey, TaskCompleted] = {}

    def snapshot(self) -> list[Any]:
        """Return the origin of the values that the store has, as JSON-able values."""
        origin = self._group.stored_origin
        return [origin.incarnation, origin.number]

    def restore(
        self, version: Version, origin: Sequence[Any] | None, learning_rate: float | None
    ) -> None:
        """Begin with the values of a snapshot, or with what workers have made of them since."""
        at = VersionOrigin(*origin) if origin else VersionOrigin(self._incarnation, 0)
        self._group = ReplicaGroup(version, at, self._incarnation)
        self._succession = Succession(version, at)
        self._learning_rate = learning_rate

    @property
    def is_begun(self) -> bool:
        """Whether it is decided what a restored job continues from."""
        return not self.is_on or self._succession is None

    @property
    def is_settled(self) -> bool:
        """Whether all that was counted of open tasks is known, so that they can be leased."""
        return not self.is_on or (self.is_begun and self._group.is_settled)

    @property
    def is_saved(self) -> bool:
        """Whether the parameter store has the values of what was counted."""
        return not self.is_on or self._group.is_saved

    # --- what the rest of the job decides --------------------------------------------------

    def holds(self, effect: Effect) -> bool:
        """Return whether an effect has to wait; it is emitted when the time has come."""
        if isinstance(effect, ChangeLearningRate):
            self._learning_rate = effect.rate
        if not self.is_on:
            return False
        group = self._group
        match effect:
            case CountApplied() if not self.is_settled:
                self._unsettled.append(effect)
            case FreezeParameters(name) if name == FINAL and not self._has_restored:
                self._unfinished.append(effect)
                self._save(finishes=True)
            case FreezeParameters() | KeepBest() | WriteSnapshot() | WriteCheckpoint():
                self._unsaved.append(effect)
                self._save()
            case RestoreBest():
                self._emit(effect)
                self._has_restored = True
                self._perform(group.replace_values(Version(group.counted + 1)))
            case RevokeLease():
                self._emit(effect)
                self._perform(group.flush())
            case ChangeLearningRate():
                self._emit(effect)
                self._perform(group.flush())
            case _:
                return False
        return True

    def _save(self, *, finishes: bool = False) -> None:
        """Have the values saved that an effect waits for; not before the group has begun."""
        if self.is_begun:
            self._perform(self._group.save(finishes=finishes))

    def expect(self, workers: Iterable[WorkerId]) -> None:
        """Wait for these workers of an earlier master, which may hold later values."""
        if self._succession is not None:
            self._succession.expect(workers)

    def lose(self, worker: WorkerId) -> None:
        """Go on without a worker that is gone, or will not be listened to any more."""
        if self._succession is not None:
            self._succession.withdraw(worker)
        if self.is_on:
            self._perform(self._group.lose(worker))

    def leave(self, worker: WorkerId) -> None:
        """Have a worker leave with the end of the present generation."""
        if self._succession is not None:
            self._succession.withdraw(worker)
        if self.is_on:
            self._perform(self._group.leave(worker))

    def proceed(self, now: float) -> None:
        """Count what can count now; called again and again."""
        if not self.is_on:
            return
        self._decide(now)
        self._perform(self._group.proceed())
        for event in self._completions.values():
            if (lease := self._ledger.leases.current(event.worker, event.lease)) is not None:
                self._ledger.leases.renew(lease, now)

    def await_counts(self, event: TaskCompleted) -> TaskCompleted | None:
        """Return a completion with what counts by now; None if it waits for further steps."""
        task = self._ledger.find(event.lease.task)
        if not self.is_on or task is None:
            return event
        if task.minibatches < event.minibatches:
            self._completions[event.lease.task] = event
            return None
        return replace(event, applied=task.minibatches, examples=task.examples_applied)

    # --- what workers report ---------------------------------------------------------------

    def take(
        self, event: ReplicaEvent, workers: WorkerPool, reports: InstanceReports, now: float
    ) -> None:
        """Take what a worker reports or asks, and answer it."""
        match event:
            case GenerationRequested(worker, instance):
                sender = reports.find_sender(worker, instance, now)
                current = workers.find(worker)
                if current is None or current.instance != instance:
                    self._emit(GroupLeft())
                    return
                self._request_generation(event, now, leaves=not isinstance(sender, Worker))
            case StepsReported():
                self._take_report(event)
            case ValuesSent(worker, version):
                accepted = self._group.receive_values(worker, version)
                self._emit(ValuesAccepted(accepted))
                self._perform(self._group.proceed() if accepted else [])

    def _request_generation(self, event: GenerationRequested, now: float, *, leaves: bool) -> None:
        if self._succession is not None and not leaves:
            self._succession.offer(event.worker, event.holding, now)
            self._decide(now, event.worker, event.steps)
        group = self._group
        if (succession := self._succession) is not None and not leaves:
            if succession.choose() == event.worker and succession.has_waited(now):
                self._emit(StepsWanted(succession.version))
            else:
                self._emit(WaitForWork(_WAIT_S, "workers join the new master"))
            return
        if not leaves:
            self._perform(group.join(event.worker))
        present = group.generation
        is_member = group.is_member(event.worker)
        if present and present.number > event.after and is_member:
            self._emit(
                GenerationBegun(
                    present,
                    tuple(self._positions(event.worker, present)),
                    self._next_token,
                    self._learning_rate,
                    group.origin,
                )
            )
        elif group.must_send(event.worker):
            self._emit(ValuesRequested())
        elif leaves and not is_member:
            self._emit(GroupLeft())
        else:
            self._emit(WaitForWork(_WAIT_S, "the group of workers changes"))

    def _decide(
        self, now: float, worker: WorkerId | None = None, steps: Sequence[ReplicaStep] = ()
    ) -> None:
        """Begin a restored job once it is known what workers hold; ``worker`` tells steps."""
        if (succession := self._succession) is None or not succession.has_waited(now):
            return
        chosen, inherited = succession.choose(), succession.decide()
        wanted, told = inherited.version - succession.version, steps if worker == chosen else ()
        if wanted and not told and not succession.is_overdue(now):
            return  # it is asked for them when it asks for a generation
        if len(told) != wanted or not self._steps.take(told):
            assert chosen is not None, "a snapshot lacks no steps"
            succession.refuse(chosen, now)
            self._decide(now)
            return
        self._succession = None
        for version, step in enumerate(told, succession.version + 1):
            self._count(Version(version), step, inherited=True)
        at = succession.version, succession.origin
        self._group = ReplicaGroup(*at, self._incarnation, inherited)
        if self._unsaved:
            self._save()
        if self._unfinished:
            self._save(finishes=True)
        if self._group.generation is None:
            self._perform(self._group.flush())

    def _positions(self, worker: WorkerId, begun: Generation) -> Iterator[tuple[HeldLease, int]]:
        """Yield the leases of a worker with the minibatches in the values of its generation."""
        open_ = self._count_open(begun)
        for lease in self._ledger.leases.of(worker):
            task = lease.task
            if task.key.type is TaskType.TRAINING and lease.token < self._next_token:
                yield lease.held, task.minibatches + open_[task.key]

    def _count_open(self, begun: Generation) -> Counter[TaskKey]:
        """Return the minibatches before a generation that do not count yet, by task."""
        group = self._group
        if self._open[0] != (begun.number, group.counted):  # all members ask for the same
            open_: Counter[TaskKey] = Counter()
            for made, step in group.steps.items():
                for claim in step.values() if made <= begun.version else ():
                    open_[claim.lease.task] += claim.minibatches
            self._open = (begun.number, group.counted), open_
        return self._open[1]

    def _take_report(self, event: StepsReported) -> None:
        group = self._group
        if event.cause:
            self._causes[event.worker] = event.cause
        try:
            self._perform(
                group.report(
                    event.worker,
                    event.generation,
                    event.version,
                    [{claim.worker: claim for claim in step} for step in event.steps],
                    stopped=event.stopped,
                    complete=event.complete,
                    unreachable=event.unreachable,
                )
            )
        except NotAMember:
            # A member may repeat its last report of a generation, for the answer got lost.
            lost, saved = not group.is_member(event.worker), self._snapshots.saved_version
            self._emit(StepsCounted(group.counted, True, lost=lost, saved=saved))
            return
        present = group.generation
        ended = group.is_ending or present is None or present.number != event.generation
        all_wanted = group.must_report_all(event.worker)
        saved = self._snapshots.saved_version
        self._emit(StepsCounted(group.counted, ended, all_wanted=all_wanted, saved=saved))

    def follow(self) -> Iterator[MinibatchApplied | TaskCompleted | MemberUnreachable]:
        """Yield what follows from reports, for the job to take as events."""
        while self._applied:
            yield self._applied.popleft()
        while self._expelled:
            yield self._expelled.pop(0)
        for key, event in list(self._completions.items()):
            task = self._ledger.find(key)
            if task is None or self._ledger.leases.current(event.worker, event.lease) is None:
                del self._completions[key]
            elif task.minibatches >= event.minibatches:
                del self._completions[key]
                yield event

    # --- what the group decides ------------------------------------------------------------

    def _perform(self, effects: list[GroupEffect[ReplicaClaim]]) -> None:
        for effect in effects:
            match effect:
                case CountStep(version, step):
                    self._count(version, tuple(step.values()))
                case ValuesSaved(version, worker, finishes):
                    self._use_saved(version, worker, finishes)
                case BeginGeneration():
                    self._next_token = Token(self._ledger.leases.last_token + 1)
                case LoseValues():
                    self._emit(RollBack())
                case ExpelMember(worker, peer):
                    cause = self._causes.get(peer) or self._causes.get(worker, "")
                    self._expelled.append(MemberUnreachable(worker, peer, cause))
                case EndGeneration() | ReleaseLeases() | SaveValues():
                    pass  # members learn it when they report or ask
        if self._group.is_settled:
            self._release(self._unsettled)

    def _count(self, version: Version, step: ReplicaStep, *, inherited: bool = False) -> None:
        self._emit(CountReplicaStep(version, step, inherited))
        for claim in step:
            what = claim.worker, claim.lease, claim.records, version, claim.loss, 0
            self._applied.append(MinibatchApplied(*what, claim.minibatches))

    def _use_saved(self, version: Version, worker: WorkerId | None, finishes: bool) -> None:
        if worker is not None:
            self._emit(StoreValues(worker, version))
        self._release(self._unsaved)
        if finishes:
            self._release(self._unfinished)

    def _release(self, waiting: list[Effect]) -> None:
        effects, waiting[:] = list(waiting), []
        for effect in effects:
            self._emit(effect)
