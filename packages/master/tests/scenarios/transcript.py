"""Reads a transcript of a job, applies its facts to the state machine, and writes its effects.

A transcript is plain text. Lines at the margin are facts, one each, in the grammar below;
the lines under a fact that begin with ``->`` are all the effects that it must have, in order.
Lines that begin with ``#`` are for the reader.

    job: train, data 10 6, ...        how the job is made, first of all (see ``make_job``)
    at 12.5 [while worker 1 beats]    time passes; the clock ticks every second
    tick                              the clock ticks once more
    held up to 12.5                   time passes while the master does nothing at all
    worker 0 joins                    it registers (as instance 0a, 0b, ...) and is ready
    worker 0 registers [as 0a] | is ready[: without x] | asks | beats [holding T#3 T#4] [as 0a]
    worker 0 trains T#3 [to 2]        applies minibatches up to (but not with) 2, or all
    worker 0 completes T#3[: what]    evaluation: "accuracy 3 4", prediction: "4 predictions"
    worker 0 fails T#3 [for good]: CODE what went wrong
    worker 0 returns T#3 ... [and leaves]: reason
    worker 0 is unfit: CODE what      it cannot work at all
    worker 0 exits 1 | exits by signal 9 | is taken away | cannot start: reason
    frozen NAME | output finished | checkpoint written | snapshot written | snapshot skipped
    scale 1:3 | stop: reason | master fails: CODE what
    restart the master                snapshot, through JSON, and restore; workers are gone
    resume                            the same
    export the model                  the same, in a job that only exports
    view: phase running, done 4/16    what the view must show (see ``VIEWS``)

``T#3`` is the task ``T`` (``training/0/1``) under token 3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.failure import Failure
from edl_master.core.identifiers import (
    AppliedCount,
    InstanceId,
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
from edl_master.core.settings import JobSettings, JobType, Timings
from edl_master.core.view import JobView

# --- the job -------------------------------------------------------------------------------


def make_job(line: str) -> tuple[JobSettings, tuple[int, ...], tuple[int, ...]]:
    """``train, data 10 6, validation 4, tasks of 4, minibatches of 2, epochs 2, workers 1:2``"""
    parts = [part.strip() for part in line.split(",")]
    options: dict[str, object] = {
        "minibatch_size": 2,
        "shuffle": False,
        "export": False,
    }
    data: tuple[int, ...] = ()
    validation: tuple[int, ...] = ()
    for part in parts[1:]:
        match part.split():
            case ["data", *sizes]:
                data = tuple(map(int, sizes))
            case ["validation", *sizes]:
                validation = tuple(map(int, sizes))
            case ["tasks", "of", size]:
                options["records_per_task"] = int(size)
            case ["minibatches", "of", size]:
                options["minibatch_size"] = int(size)
            case ["workers", numbers]:
                low, _, high = numbers.partition(":")
                options["min_workers"], options["max_workers"] = int(low), int(high or low)
            case ["epochs", number]:
                options["num_epochs"] = int(number)
            case ["evaluation", "every", steps]:
                options["evaluation_steps"] = int(steps)
            case ["checkpoint", "every", steps]:
                options["checkpoint_steps"] = int(steps)
            case ["snapshot", "every", seconds]:
                options["snapshot_interval_s"] = float(seconds)
            case ["attempts", number]:
                options["task_attempts"] = int(number)
            case ["crashes", number]:
                options["worker_crashes"] = int(number)
            case ["synchronous"]:
                options["epoch_barrier"] = True
            case ["export"]:
                options["export"] = True
            case ["dead", "letters", "allowed"]:
                options["allow_dead_letters"] = True
            case ["shuffled"]:
                options["shuffle"] = True
            case _:
                raise ValueError(f"job: {part!r}")
    return job_settings(JobType(parts[0]), timings=SLOW, **options), data, validation


SLOW = Timings(worker_grace_s=10.0, heartbeat_loss_s=5.0, pause_s=2.0)
"""With a tick every second, and times that are easy to follow."""

# --- effects in words ----------------------------------------------------------------------

_MARKS = {fx.Severity.INFO: "", fx.Severity.WARNING: " (warning)", fx.Severity.ERROR: " (error)"}


def _lease(task: TaskKey, token: Token) -> str:
    return f"{task}#{token}"


def _failure(failure: Failure | None) -> str:
    if failure is None:
        return ""
    where = f" | where: {failure.where}" if failure.where else ""
    detail = f" | detail: {failure.detail}" if failure.detail else ""
    return f": {failure.code} {failure.what}{where}{detail}"


def tell(effect: fx.Effect) -> str:
    """Say an effect in one line."""
    match effect:
        case fx.LeaseGranted(worker, task, token, records, _, frozen, version, states) as lease:
            line = f"worker {worker} gets {_lease(task, token)}"
            for part in records:
                line += f": file {part.file} [{part.start}, {part.stop})"
            if frozen:
                line += f", frozen {frozen} at version {version}"
            for state in add_up(states):
                line += f", {state.name} {' '.join(_numbers(state))}"
            return line + (f", after {lease.crashes} crashes" if lease.crashes else "")
        case fx.WaitForWork(_, reason):
            return f"wait: {reason}"
        case fx.LeaveJob(reason):
            return f"leave: {reason}"
        case fx.HeartbeatAnswer(lost, leave):
            line = "acknowledged"
            if lost:
                line += ", lost " + " ".join(_lease(held.task, held.token) for held in lost)
            return line + (f", leave: {leave}" if leave else "")
        case fx.Refused(reason):
            return f"refused: {reason}"
        case fx.RevokeLease(task, token):
            return f"revoke {_lease(task, token)}"
        case fx.CountApplied(task):
            return f"count what is applied of {task}"
        case fx.CloseTask(task):
            return f"close {task}"
        case fx.FlushGradients():
            return "flush gradients"
        case fx.FreezeParameters(name):
            return f"freeze {name}"
        case fx.ReleaseFrozen(name):
            return f"release {name}"
        case fx.StartWorker(worker, attempt):
            return f"start worker {worker} (instance {attempt})"
        case fx.InspectWorker(worker):
            return f"inspect worker {worker}"
        case fx.StopWorker(worker, kill):
            return f"{'kill' if kill else 'stop'} worker {worker}"
        case fx.LogEvent(kind, message, severity, _):
            return f"event {kind}{_MARKS[severity]}: {message}"
        case fx.LogScalar(name, version, value):
            return f"curve {name} at version {version}: {value:g}"
        case fx.WriteCheckpoint():
            return "write a checkpoint"
        case fx.WriteSnapshot():
            return "write a snapshot"
        case fx.FinishOutput():
            return "finish the output"
        case fx.EndJob(phase, failure):
            return f"end {phase}{_failure(failure)}"


def _numbers(state: MetricState) -> Iterator[str]:
    for variable in state.variables:
        for value in variable.values.flat:
            yield f"{value:g}"


# --- what the view shows -------------------------------------------------------------------


def _worker(view: JobView, number: str, what: str) -> str:
    return str(getattr(view.workers[int(number)], what))


def _tasks(view: JobView, type_: str) -> str:
    counts = view.tasks[TaskType(type_)]
    words = ("pending", "leased", "done", "retried", "dead")
    return " ".join(f"{getattr(counts, w)} {w}" for w in words if getattr(counts, w))


VIEWS: dict[str, Callable[[JobView, list[str]], str]] = {
    "phase": lambda view, _: view.phase.value,
    "done": lambda view, _: f"{view.progress.records_done}/{view.progress.records_total}",
    "epoch": lambda view, _: f"{view.progress.epoch}/{view.progress.num_epochs}",
    "version": lambda view, _: str(view.progress.parameter_version),
    "steps": lambda view, _: str(view.progress.steps),
    "trained": lambda view, _: str(view.records_trained),
    "replayed": lambda view, _: str(view.records_replayed),
    "preemptions": lambda view, _: str(view.preemptions),
    "failures": lambda view, _: str(view.worker_failures),
    "predictions": lambda view, _: str(view.predictions),
    "rejected": lambda view, _: str(view.gradients_rejected),
    "workers": lambda view, _: f"{view.min_workers}:{view.max_workers}",
    "seconds": lambda view, _: f"{view.seconds:g}",
    "worker": lambda view, args: f"{args[0]} " + _worker(view, args[0], "state"),
    "restarts": lambda view, args: f"{args[0]} " + _worker(view, args[0], "restarts"),
    "holds": lambda view, args: f"{args[0]} " + _worker(view, args[0], "task"),
    "tasks": lambda view, args: f"{args[0]} {_tasks(view, args[0])}",
    "metric": lambda view, args: f"{args[0]} {view.metrics.get(args[0])}",
    "saved": lambda view, _: str(view.saved_version),
    "warnings": lambda view, _: str(len(view.warnings)),
    "dead": lambda view, _: " ".join(str(letter.task) for letter in view.dead_letters),
}


def _describe_view(view: JobView, what: str) -> str:
    shown = []
    for part in what.split(","):
        name, *args = part.split()
        shown.append(f"{name} {VIEWS[name](view, args)}")
    return ", ".join(shown)


# --- facts ---------------------------------------------------------------------------------

_TASK = re.compile(r"(\w+)/(\d+)/(\d+)#(\d+)")


def _parse_held(text: str) -> ev.HeldLease:
    found = _TASK.fullmatch(text)
    if not found:
        raise ValueError(f"not a task under a token: {text!r}")
    type_, round_, number, token = found.groups()
    return ev.HeldLease(TaskKey(TaskType(type_), int(round_), int(number)), Token(int(token)))


def _parse_failure(text: str) -> Failure:
    code, what = text.split(" ", 1)
    return Failure(code, what, detail="Traceback ...")


@dataclass
class Player:
    """Plays facts, with the little memory that a plane and workers have of their own."""

    job: JobStateMachine | None = None
    made: tuple[JobSettings, tuple[int, ...], tuple[int, ...]] | None = None
    now: float = 0.0
    version: int = 0
    applied: dict[TaskKey, int] = field(default_factory=dict)
    instances: dict[int, str] = field(default_factory=dict)
    letters: dict[int, int] = field(default_factory=dict)
    ranges: dict[TaskKey, int] = field(default_factory=dict)

    def play(self, line: str) -> list[str]:
        """Play one fact; return its effects in words, or what the view showed."""
        match line.split():
            case ["job:", *_]:
                self.made = make_job(line.removeprefix("job:").strip())
                self.job = JobStateMachine(*self.made)
                return []
            case ["at", time]:
                return list(self._pass_time(float(time), ""))
            case ["at", time, "while", *_]:
                return list(self._pass_time(float(time), line.partition(" while ")[2]))
            case ["held", "up", "to", time]:
                self.now = float(time)
                return []
            case ["view:", *_]:
                assert self.job is not None
                seen = _describe_view(self.job.view(self.now), line.removeprefix("view:"))
                return [f"view: {seen}"]
            case ["restart", "the", "master"] | ["resume"]:
                self._restore()
                return []
            case ["export", "the", "model"]:
                self._restore(export_only=True, export=True, min_workers=1, max_workers=1)
                return []
            case _:
                return [tell(e) for event in self._facts(line) for e in self._handle(event)]

    def _restore(self, **changes: Any) -> None:
        assert self.job is not None
        assert self.made is not None
        saved = json.loads(json.dumps(self.job.snapshot(), default=array_to_json))
        settings, data, validation = self.made
        self.job = JobStateMachine.restore(replace(settings, **changes), data, validation, saved)

    def _pass_time(self, time: float, fact: str) -> Iterator[str]:
        """Look at the clock, and repeat a fact, every second before ``time``."""
        while self.now + 1.0 < time:
            self.now += 1.0
            for event in [ev.Tick(), *(self._facts(fact) if fact else ())]:
                for effect in self._handle(event):
                    if effect != fx.HeartbeatAnswer(()):
                        yield f"[{self.now:g} s] {tell(effect)}"
        self.now = time

    def _handle(self, event: ev.Event) -> list[fx.Effect]:
        assert self.job is not None
        out = self.job.handle(event, self.now)
        self.job.check_invariants()
        for effect in tuple(out):
            match effect:
                case fx.LeaseGranted(records=(fx.Range() as records,)):
                    self.ranges[effect.task] = records.stop - records.start
                case fx.CountApplied(task):
                    assert self.made is not None
                    minibatches = self.applied.get(task, 0)
                    size = self.made[0].minibatch_size
                    count = AppliedCount(minibatches, min(minibatches * size, self.ranges[task]))
                    out += self._handle(ev.AppliedCounted(task, count))
        return [effect for effect in out if not _is_noise(effect)]

    def _facts(self, line: str) -> Iterator[ev.Event]:
        head, _, tail = line.partition(": ")
        match head.split():
            case ["tick"]:
                yield ev.Tick()
            case ["worker", number, *words]:
                yield from self._worker_facts(int(number), words, tail)
            case ["frozen", name]:
                yield ev.ParametersFrozen(name, Version(self.version))
            case ["output", "finished"]:
                yield ev.OutputFinished()
            case ["output", "fails"]:
                yield ev.OutputFinished(_parse_failure(tail))
            case ["checkpoint", "written"]:
                yield ev.CheckpointTaken(Version(self.version), 0.5)
            case ["snapshot", "written"]:
                yield ev.SnapshotTaken(Version(self.version), 0.5)
            case ["snapshot", "skipped"]:
                yield ev.SnapshotSkipped()
            case ["checkpoint", "fails"]:
                yield ev.CheckpointFailed(Version(self.version), _parse_failure(tail))
            case ["scale", numbers]:
                low, _, high = numbers.partition(":")
                yield ev.ScaleRequested(int(low), int(high))
            case ["stop"]:
                yield ev.StopRequested(tail)
            case ["master", "fails"]:
                yield ev.MasterFailed(_parse_failure(tail))
            case _:
                raise ValueError(f"not a fact: {line!r}")

    def _worker_facts(self, number: int, words: list[str], tail: str) -> Iterator[ev.Event]:
        worker = WorkerId(number)
        instance = InstanceId(self.instances.get(number, f"{number}?"))
        if len(words) > 2 and words[-2] == "as":
            instance = InstanceId(words[-1])
            words = words[:-2]
            if words[0] == "registers":
                self.instances[number] = instance
        elif words[0] in ("joins", "registers"):
            letter = self.letters.get(number, 0)
            self.letters[number] = letter + 1
            instance = InstanceId(f"{number}{'abcdefghijklmnopqrstuvwxyz'[letter]}")
            self.instances[number] = instance
        match words:
            case ["joins"]:
                yield ev.WorkerRegistered(worker, instance, f"host-{number}", 100 + number)
                yield ev.WorkerReady(worker, instance)
            case ["registers"]:
                yield ev.WorkerRegistered(worker, instance, f"host-{number}", 100 + number)
            case ["is", "ready"]:
                yield ev.WorkerReady(worker, instance, (tail,) if tail else ())
            case ["is", "unfit"]:
                yield ev.WorkerFailed(worker, instance, _parse_failure(tail))
            case ["asks"]:
                yield ev.LeaseRequested(worker, instance)
            case ["beats"]:
                yield ev.HeartbeatReceived(worker, instance, (), "IDLE")
            case ["beats", "holding", *held]:
                leases = tuple(map(_parse_held, held))
                yield ev.HeartbeatReceived(worker, instance, leases, "COMPUTING")
            case ["trains", held]:
                yield from self._train(worker, _parse_held(held), None)
            case ["trains", held, "to", stop]:
                yield from self._train(worker, _parse_held(held), int(stop))
            case ["completes", held]:
                yield self._complete(worker, _parse_held(held), tail)
            case ["fails", held]:
                yield ev.TaskFailed(worker, _parse_held(held), _parse_failure(tail), False)
            case ["fails", held, "for", "good"]:
                yield ev.TaskFailed(worker, _parse_held(held), _parse_failure(tail), True)
            case ["returns", *held]:
                leaving = held[-2:] == ["and", "leaves"]
                leases = tuple(map(_parse_held, held[:-2] if leaving else held))
                yield ev.LeasesReturned(worker, leases, tail, leaving)
            case ["leaves"]:
                yield ev.LeasesReturned(worker, (), tail, True)
            case ["exits", *how]:
                code = int(how[0]) if how[0] != "by" else None
                signal = int(how[2]) if how[0] == "by" else None
                yield ev.InstanceExited(
                    worker, self._dead(number, instance), code, signal, False, tail
                )
            case ["is", "taken", "away"]:
                yield ev.InstanceExited(worker, self._dead(number, instance), None, 9, True)
            case ["cannot", "start"]:
                yield ev.InstanceNotStarted(worker, tail)
            case ["can", "never", "start"]:
                yield ev.InstanceNotStarted(worker, tail, permanent=True)
            case ["waits", "for", reason]:
                yield ev.InstancePending(worker, reason, tail)
            case ["has", "a", "place"]:
                yield ev.InstancePending(worker, "")
            case ["is", "rejected"]:
                yield ev.GradientRejected()
            case _:
                raise ValueError(f"not a fact about a worker: {' '.join(words)!r}")

    def _dead(self, number: int, instance: InstanceId) -> InstanceId | None:
        """The instance that ended, by its name if it ever registered."""
        if self.instances.get(number) == instance:
            del self.instances[number]
        return None if instance.endswith("?") else instance

    def _minibatches(self, task: TaskKey) -> int:
        assert self.made is not None
        return -(-self.ranges[task] // self.made[0].minibatch_size)

    def _train(
        self, worker: WorkerId, held: ev.HeldLease, stop: int | None
    ) -> Iterator[ev.MinibatchApplied]:
        assert self.made is not None
        size = self.made[0].minibatch_size
        for index in range(self.applied.get(held.task, 0), stop or self._minibatches(held.task)):
            self.version += 1
            self.applied[held.task] = index + 1
            records = min(size, self.ranges[held.task] - index * size)
            version = Version(self.version)
            yield ev.MinibatchApplied(worker, held, records, version, 0.5, 0)

    def _complete(self, worker: WorkerId, held: ev.HeldLease, tail: str) -> ev.TaskCompleted:
        """``accuracy 3 4`` are metric states or values, ``4 predictions`` is their number,
        ``without x`` is what a trained model lacks."""
        training = held.task.type is TaskType.TRAINING
        states: MetricStates = ()
        warnings: tuple[str, ...] = ()
        metrics: dict[str, float] = {}
        records = self.ranges.get(held.task, 0)
        match tail.split():
            case [number, "predictions"]:
                records = int(number)
            case ["without", *_]:
                warnings = (tail,)
            case [name, *numbers]:
                values = tuple(map(float, numbers))
                if held.task.type is TaskType.EVALUATION_SUMMARY:
                    metrics = {name: values[0]}
                else:
                    addable = Addable("float32", np.float32(values))
                    states = (MetricState(name, (addable,)),)
        minibatches = self._minibatches(held.task) if training else 0
        applied = self.applied.get(held.task, 0)
        return ev.TaskCompleted(
            worker, held, minibatches, applied, records, records, states, metrics, warnings
        )


def _is_noise(effect: fx.Effect) -> bool:
    """The curve of the loss has tests of its own."""
    return isinstance(effect, fx.LogScalar) and effect.name == "loss"


def rewrite(path: Path) -> str:
    """Play a whole transcript; return it with what really followed under each fact."""
    player = Player()
    lines: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip().startswith("->"):
            continue
        if not line.strip() or line.startswith("#"):
            lines.append(line)
            continue
        try:
            effects = player.play(line.strip())
        except Exception as error:
            raise AssertionError(f"{path.name}:{number}: {line}") from error
        if line.startswith("view:"):
            lines.extend(effects)
        else:
            lines.append(line)
            lines.extend(f"    -> {effect}" for effect in effects)
    return "\n".join(lines) + "\n"
