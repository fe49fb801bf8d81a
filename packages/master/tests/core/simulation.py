"""A small world around the state machine: plane, platform, workers, and a network that misbehaves.

The world is played by one seeded random generator. First come storms: instances die, are taken
away or fall silent, messages are lost, repeated or come late, the job is scaled, the master
is restored from a snapshot. Then all is calm, and the job has to end.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import numpy as np

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.failure import Failure
from edl_master.core.identifiers import (
    AppliedCount,
    InstanceId,
    ParameterCounts,
    TaskKey,
    TaskType,
    Token,
    Version,
    WorkerId,
)
from edl_master.core.job import JobStateMachine
from edl_master.core.metric_states import (
    Addable,
    MetricState,
    MetricStates,
    add_up,
    array_to_json,
)
from edl_master.core.settings import JobSettings, JobType


def count_records(lease: fx.LeaseGranted) -> int:
    """Return the number of records of a task."""
    return sum(part.stop - part.start for part in lease.records)


@dataclass
class Plane:
    """The rules of applying minibatches, and which records are in the model."""

    minibatch_size: int
    counts: dict[TaskKey, AppliedCount] = field(default_factory=dict)
    fences: dict[TaskKey, Token] = field(default_factory=dict)
    closed: set[TaskKey] = field(default_factory=set)
    trained: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """(epoch, file, record) to how often it is in the model."""
    version: int = 0
    frozen: dict[str, int] = field(default_factory=dict)

    def push(self, lease: fx.LeaseGranted, index: int) -> int | None:
        """Apply a minibatch; return its records, or None when nothing changed."""
        if self.fences.get(lease.task) != lease.token:
            return None
        count = self.counts.get(lease.task, AppliedCount())
        if index != count.minibatches:
            return None
        numbers = [(r.file, record) for r in lease.records for record in range(r.start, r.stop)]
        minibatch = numbers[index * self.minibatch_size :][: self.minibatch_size]
        for file, record in minibatch:
            self.trained[(lease.task.round, file, record)] += 1
        self.counts[lease.task] = AppliedCount(index + 1, count.records + len(minibatch))
        self.version += 1
        return len(minibatch)

    def close(self, task: TaskKey) -> None:
        assert task not in self.closed, f"{task} closed twice"
        self.closed.add(task)
        self.counts.pop(task, None)
        self.fences.pop(task, None)


@dataclass
class Process:
    """An instance: what a worker process knows."""

    worker: WorkerId
    attempt: int
    instance: InstanceId
    registered: bool = False
    ready: bool = False
    leases: list[fx.LeaseGranted] = field(default_factory=list)
    index: int = 0
    silent: int = 0
    """Turns for which it is frozen."""
    told_to_leave: bool = False
    stacks: str = ""
    stuck: int = 0
    """Turns for which it beats, and does nothing else."""


KILLS_IN_A_ROW = 8
"""Kills in a row that the world allows itself: more would rightly count as a crash loop."""


class World:
    """Plays one job to its end."""

    replicated = False
    """Whether its workers hold all values."""

    def __init__(
        self,
        settings: JobSettings,
        data: tuple[int, ...],
        validation: tuple[int, ...],
        seed: int,
        *,
        storm: int,
        restarts: bool,
    ) -> None:
        self.settings = settings
        self.data = data
        self.validation = validation
        self.random = Random(seed)
        self.storm = storm
        self.restarts = restarts
        self.now = 0.0
        self.job = JobStateMachine(settings, data, validation)
        self.adding_up: tuple[tuple[MetricStates, ...], MetricStates] = ((), ())
        """Metric states, and their sum, which replaces them later."""
        self.plane = Plane(settings.minibatch_size)
        self.parts: set[TaskKey] = set()
        """Predictions on the disk, of tasks that the job has taken."""
        self.done: set[TaskKey] = set()
        """Tasks that are done for good, unless the master forgets; none of a job that trains."""
        self.processes: list[Process] = []
        self.exits: list[ev.InstanceExited] = []
        self.starts: list[tuple[WorkerId, int]] = []
        self.late: list[ev.Event] = []
        self.tokens: set[Token] = set()
        self.instances = 0
        self.kills = 0
        self.most_open = 0
        self.scored: list[float] = []
        self.end: fx.EndJob | None = None
        self.happened: Counter[str] = Counter()
        self.story: list[str] | None = None
        """A readable account of what happened."""
        self.granted: dict[Token, fx.LeaseGranted] = {}
        self.prepare()
        self.saved = self._save()

    def prepare(self) -> None:
        """Add what other worlds need."""

    def carry_out(self, effect: fx.Effect) -> None:
        """Carry out an effect that only other worlds have."""

    # --- the owner of the job --------------------------------------------------------------

    def tell(self, event: ev.Event) -> list[fx.Effect]:
        """Hand a fact to the state machine and carry out what it decides; return the effects."""
        if self.random.random() < 0.3:
            self._add_up_metrics()
        effects = self.job.handle(event, self.now)
        self.happened[type(event).__name__] += 1
        self.happened.update(type(effect).__name__ for effect in effects)
        self.happened.update(e.kind for e in effects if isinstance(e, fx.LogEvent))
        if self.story is not None:
            self.story.append(f"{self.now:.2f} {event}")
            self.story += [f"    -> {effect}" for effect in effects]
        self.job.check_invariants()
        self._check_view()
        if isinstance(event, ev.TaskCompleted):
            self._note_completed(event, effects)
        follow: list[ev.Event] = []
        for effect in effects:
            self.carry_out(effect)
            match effect:
                case fx.LeaseGranted(task=task, token=token):
                    self.granted[token] = effect
                    assert token not in self.tokens, f"token {token} used twice"
                    assert task not in self.plane.closed, f"{task} leased after its end"
                    assert task not in self.done, f"{task} is done again"
                    self.tokens.add(token)
                    if task.type is TaskType.TRAINING:
                        self.plane.fences[task] = token
                        self._check_barrier(task.round)
                    if effect.frozen:
                        assert self.plane.frozen[effect.frozen] == effect.version
                case fx.RevokeLease(task, token):
                    if self.plane.fences.get(task) == token:
                        del self.plane.fences[task]
                case fx.CountApplied(task):
                    count = self.plane.counts.get(task, AppliedCount())
                    follow.append(ev.AppliedCounted(task, count))
                case fx.CloseTask(task):
                    self.plane.close(task)
                case fx.FreezeParameters(name):
                    assert name not in self.plane.frozen
                    self.plane.frozen[name] = self.plane.version
                    follow.append(ev.ParametersFrozen(name, Version(self.plane.version)))
                case fx.ReleaseFrozen(name):
                    del self.plane.frozen[name]
                case fx.StartWorker(worker, attempt):
                    self.starts.append((worker, attempt))
                case fx.StopWorker(worker, kill):
                    self._stop(worker, kill)
                case fx.WriteCheckpoint():
                    self.saved = self._save()
                    follow.append(ev.CheckpointTaken(Version(self.plane.version), 0.01, 0.001))
                case fx.WriteSnapshot():
                    self.saved = self._save()
                    kept = ev.SnapshotTaken(Version(self.plane.version), 0.01, 0.001)
                    follow.append(kept)
                case fx.FinishOutput():
                    if self.settings.type is JobType.PREDICT:
                        assert len(self.parts) == self._tasks, "parts are missing"
                    follow.append(ev.OutputFinished())
                case fx.EndJob():
                    assert self.end is None, "the job ended twice"
                    self.end = effect
                case _:
                    pass
        for event_ in follow:
            effects += self.tell(event_)
        return effects

    @property
    def _tasks(self) -> int:
        return sum(-(-records // self.settings.records_per_task) for records in self.data)

    def _note_completed(self, event: ev.TaskCompleted, effects: list[fx.Effect]) -> None:
        """Remember what has been done for good."""
        task = event.lease.task
        refused = any(isinstance(effect, fx.Refused) for effect in effects)
        if not refused and self.settings.type is not JobType.TRAIN and self.end is None:
            self.done.add(task)
            if task.type is TaskType.PREDICTION:
                self.parts.add(task)

    def _check_view(self) -> None:
        """Check that the view is consistent, whatever happened."""
        view = self.job.view(self.now)
        progress = view.progress
        numbers = [
            *(progress.records_done, progress.records_total, progress.epoch, progress.steps),
            *(progress.parameter_version, progress.records_per_s, progress.productive_s),
            *(view.seconds, view.min_workers, view.max_workers, view.records_trained),
            *(view.records_replayed, view.preemptions, view.worker_failures, view.predictions),
            *(view.gradients_rejected, view.staleness_mean, *progress.lost_s.values()),
        ]
        for counts in view.tasks.values():
            numbers += [counts.pending, counts.leased, counts.done, counts.retried, counts.dead]
        for worker in view.workers:
            numbers += [worker.records, worker.steps, worker.restarts, worker.records_per_s]
        assert all(number >= 0 for number in numbers), view
        assert 0.0 <= progress.goodput <= 1.0, view
        assert progress.records_done <= progress.records_total, view

    def _add_up_metrics(self) -> None:
        """Put a sum that was begun some events ago in its place, and begin another one."""
        self.job.replace_metric_addends(*self.adding_up)
        addends = self.job.metric_addends
        self.adding_up = addends, add_up(addends)

    def _check_barrier(self, epoch: int) -> None:
        if self.settings.epoch_barrier:
            size, mixing = self.settings.records_per_task, self.settings.mixing
            data = self.data if mixing is None else (sum(self.data),)
            before = epoch * sum(-(-records // size) for records in data)
            done = sum(task.round < epoch for task in self.plane.closed)
            assert done == before, f"epoch {epoch} begins before the one before is complete"

    def _save(self) -> str:
        """Ledger first, then the plane, which may be ahead by minibatches, but not by tasks."""
        ledger = json.dumps(self.job.snapshot(), default=array_to_json)
        if self.random.random() < 0.5:
            for process in self.processes:
                self._push(process, quietly=True)
        self.saved_plane = copy.deepcopy(self.plane)
        self.saved_done = set(self.done)
        return ledger

    def restart_master(self) -> None:
        """The master is killed; another one goes on from the last snapshot."""
        ledger = json.loads(self.saved)
        self.job = JobStateMachine.restore(
            self.settings,
            self.data,
            self.validation,
            ledger,
            ParameterCounts(Version(self.saved_plane.version), dict(self.saved_plane.counts)),
        )
        self.plane = copy.deepcopy(self.saved_plane)
        self.done = set(self.saved_done)
        if self.settings.type is JobType.PREDICT:
            keys = {TaskKey(TaskType.PREDICTION, 0, number) for number in range(self._tasks)}
            settled = {key for key in keys if self.job.is_settled(key)}
            assert settled <= self.parts, "what is done has a part"
            assert settled == self.done
            self.parts = settled
        self.plane.fences.clear()
        self.plane.frozen.clear()
        self.tokens = {t for t in self.tokens if t <= ledger["ledger"]["last_token"]}
        self.late.clear()  # said to the incarnation before: refused by its number
        self.starts.clear()
        self.exits.clear()
        for process in self.processes:
            process.registered = process.ready = False
            process.leases.clear()
        self.processes = [p for p in self.processes if self.random.random() < 0.7]
        for process in self.processes:
            if self.random.random() < 0.5:
                self._register(process)
        for process in self.processes:
            if self.random.random() < 0.7:
                self.tell(ev.InstanceFound(process.worker, process.instance, process.attempt))

    # --- the platform ----------------------------------------------------------------------

    def _stop(self, worker: WorkerId, kill: bool) -> None:
        self.starts = [start for start in self.starts if start[0] != worker or not kill]
        for process in [p for p in self.processes if p.worker == worker]:
            process.told_to_leave = True
            if kill:
                self._die(process, 9, preempted=False)

    def _die(self, process: Process, signal: int | None, *, preempted: bool) -> None:
        self.processes.remove(process)
        code = 0 if signal is None else None
        instance, attempt = self.random.choice(
            [(process.instance, process.attempt), (process.instance, None), (None, process.attempt)]
        )
        self.exits.append(
            ev.InstanceExited(process.worker, instance, code, signal, preempted, attempt=attempt)
        )

    # --- the network -----------------------------------------------------------------------

    def _send(self, event: ev.Event) -> list[fx.Effect] | None:
        """Say something to the master; None when the message or its answer was lost."""
        fate = self.random.random() if self.storm > 0 else 1.0
        if fate < 0.04:
            return None
        if fate < 0.10:
            self.late.append(event)
            return None
        if fate < 0.16:
            self.late.append(event)
        effects = self.tell(event)
        return None if 0.16 <= fate < 0.20 else effects

    # --- workers ---------------------------------------------------------------------------

    def _register(self, process: Process) -> None:
        effects = self._send(ev.WorkerRegistered(process.worker, process.instance, "host", 1))
        if effects is None:
            return
        if any(isinstance(effect, fx.LeaveJob) for effect in effects):
            process.told_to_leave = True
        process.registered = True

    def _act(self, process: Process) -> None:
        """One turn of a worker process."""
        if process.silent > 0:
            process.silent -= 1
        elif process.stuck > 0 and process.registered and self.random.random() < 0.5:
            process.stuck -= 1
            held = tuple(ev.HeldLease(lease.task, lease.token) for lease in process.leases)
            beat = ev.HeartbeatReceived(
                process.worker, process.instance, held, "computing", process.stacks
            )
            self._mind(process, self._send(beat))
        elif process.stuck > 0 and process.registered:
            process.stuck -= 1
        elif process.told_to_leave:
            held = tuple(ev.HeldLease(lease.task, lease.token) for lease in process.leases)
            if self.random.random() < 0.8:
                instance = process.instance if self.random.random() < 0.5 else None
                self._send(
                    ev.LeasesReturned(process.worker, held, "asked", True, instance=instance)
                )
            self._die(process, None, preempted=False)
        elif not process.registered:
            self._register(process)
        elif not process.ready:
            effects = self._send(
                ev.WorkerReady(process.worker, process.instance, replicated=self.replicated)
            )
            process.ready = effects is not None
            self._mind(process, effects)
        elif self.random.random() < 0.3:
            held = tuple(ev.HeldLease(lease.task, lease.token) for lease in process.leases)
            self._mind(
                process,
                self._send(
                    ev.HeartbeatReceived(
                        process.worker, process.instance, held, "computing", process.stacks
                    )
                ),
            )
        elif not process.leases or (len(process.leases) < 2 and self.random.random() < 0.3):
            self._mind(process, self._send(ev.LeaseRequested(process.worker, process.instance)))
        else:
            self._work(process)

    def _mind(self, process: Process, effects: list[fx.Effect] | None) -> None:
        """Take the master's answer in."""
        for effect in effects or ():
            match effect:
                case fx.LeaseGranted(worker=worker) if worker == process.worker:
                    process.leases.append(effect)
                    if len(process.leases) == 1:
                        process.index = self._skip(effect)
                case fx.LeaveJob():
                    process.told_to_leave = True
                case fx.HeartbeatAnswer(lost, leave, send_stacks):
                    process.stacks = "somewhere" if send_stacks else ""
                    self._drop(process, {held.token for held in lost})
                    process.told_to_leave = process.told_to_leave or bool(leave)
                case _:
                    pass

    def _skip(self, lease: fx.LeaseGranted) -> int:
        return self.plane.counts.get(lease.task, AppliedCount()).minibatches

    def _drop(self, process: Process, tokens: set[Token]) -> None:
        before = process.leases[:1]
        process.leases = [lease for lease in process.leases if lease.token not in tokens]
        if process.leases and process.leases[:1] != before:
            process.index = self._skip(process.leases[0])

    def _work(self, process: Process) -> None:
        lease = process.leases[0]
        held = ev.HeldLease(lease.task, lease.token)
        if self.storm > 0 and self.random.random() < 0.03:
            failure = Failure("USER_CODE", "boom")
            self._send(ev.TaskFailed(process.worker, held, failure, permanent=False))
            self._drop(process, {lease.token})
        elif lease.task.type is TaskType.TRAINING and process.index < self._minibatches(lease):
            self._push(process)
        else:
            if self._send(self._completion(process, lease)) is not None:
                self._drop(process, {lease.token})  # otherwise it will say so again

    def _minibatches(self, lease: fx.LeaseGranted) -> int:
        length = count_records(lease)
        return -(-length // self.settings.minibatch_size)

    def _push(self, process: Process, *, quietly: bool = False) -> None:
        """Push the next minibatch; a lost answer makes the worker push it again."""
        if not process.leases or not process.ready:
            return
        lease = process.leases[0]
        if lease.task.type is not TaskType.TRAINING or process.index >= self._minibatches(lease):
            return
        records = self.plane.push(lease, process.index)
        if records is not None:
            self.kills = 0
            held = ev.HeldLease(lease.task, lease.token)
            version = Version(self.plane.version)
            applied = ev.MinibatchApplied(process.worker, held, records, version, 1.0, 0)
            if quietly:
                self.late.append(applied)
            else:
                self.tell(applied)
        elif self.plane.fences.get(lease.task) != lease.token:
            self._drop(process, {lease.token})
            return
        if quietly or self.random.random() < 0.95:
            process.index += 1

    def _completion(self, process: Process, lease: fx.LeaseGranted) -> ev.TaskCompleted:
        held = ev.HeldLease(lease.task, lease.token)
        length = count_records(lease)
        minibatches = applied = 0
        states: MetricStates = ()
        metrics: dict[str, float] = {}
        match lease.task.type:
            case TaskType.TRAINING:
                minibatches = self._minibatches(lease)
                applied = self.plane.counts.get(lease.task, AppliedCount()).minibatches
            case TaskType.EVALUATION:
                states = (MetricState("seen", (Addable("int64", np.array(length)),)),)
            case TaskType.EVALUATION_SUMMARY:
                (seen,) = add_up(lease.metric_states)
                self.scored.append(float(seen.variables[0].values))
                metrics = {"seen": self.scored[-1]}
            case _:
                pass
        return ev.TaskCompleted(
            process.worker, held, minibatches, applied, length, length, states, metrics
        )

    # --- time ------------------------------------------------------------------------------

    def run(self, most_turns: int = 60_000) -> None:
        """Play until the job has ended.

        Raises:
            AssertionError: it does not end although all is calm.
        """
        for _ in range(most_turns):
            self.turn()
            if self.end is not None:
                return
        raise AssertionError(f"the job does not end: {self.job.view(self.now)}")

    def turn(self) -> None:
        """Let a little time pass, and something happen."""
        self.storm -= 1
        self.now += self.random.random() * 0.2
        chance = self.random.random
        if chance() < 0.2:
            self.tell(ev.Tick())
        if self.starts and chance() < 0.3:
            worker, attempt = self.starts.pop(0)
            self.instances += 1
            self.processes.append(
                Process(worker, attempt, InstanceId(f"instance-{self.instances}"))
            )
        if self.exits and chance() < 0.5:
            self.tell(self.exits.pop(0))
        if self.late and (self.storm <= 0 or chance() < 0.3):
            index = self.random.randrange(len(self.late))
            self.tell(self.late.pop(index))  # no process waits for the answer any more
        for process in list(self.processes):
            if process in self.processes and chance() < 0.8:
                self._act(process)
        if self.storm > 0 and self.end is None:
            self._misbehave()
        saved = self.job.snapshot()["ledger"]["rounds"]
        self.most_open = max(self.most_open, sum(len(round_["open"]) for round_ in saved))

    def _misbehave(self) -> None:
        chance = self.random.random
        if self.processes and chance() < 0.03:
            process = self.random.choice(self.processes)
            preempted = self.kills >= KILLS_IN_A_ROW or chance() < 0.5
            self.kills += not preempted
            self._die(process, 9, preempted=preempted)
        if self.processes and chance() < 0.02:
            self.random.choice(self.processes).silent = self.random.choice((20, 120, 600))
        if self.processes and chance() < 0.01:
            self.random.choice(self.processes).stuck = self.random.choice((50, 400, 1500))
        if chance() < 0.01:
            low = self.random.randrange(0, 3)
            self.tell(ev.ScaleRequested(low, low + self.random.randrange(1, 3)))
        if chance() < 0.003:
            self.now += 30 * chance()  # the master is held up
        if self.restarts and chance() < 0.01:
            self.saved = self._save()
        if self.restarts and chance() < 0.005:
            self.restart_master()
