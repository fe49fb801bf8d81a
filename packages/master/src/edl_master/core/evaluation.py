"""Evaluation: one frozen version, many tasks whose metric states add up, one summary.

An evaluation has three states, each with its own data: waiting for its frozen
version, adding up the metric states of its tasks, and waiting for one worker to compute values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeGuard

from edl_master.core.effects import (
    Effect,
    FreezeParameters,
    LogEvent,
    LogScalar,
    ReleaseFrozen,
    Severity,
)
from edl_master.core.identifiers import TaskType, Version
from edl_master.core.ledger import Ledger
from edl_master.core.metric_states import (
    MetricStates,
    check_addable,
    states_from_document,
    states_to_document,
)
from edl_master.core.tasks import Round, TaskPartition


@dataclass(frozen=True, slots=True)
class AwaitingFreeze:
    """Waits for the frozen version that it has requested."""

    number: int
    name: str


@dataclass(slots=True)
class Evaluating:
    """Its tasks are leased; their metric states are ``addends`` until the owner adds them up."""

    number: int
    frozen: str
    version: Version | None
    tasks: int = 0
    addends: tuple[MetricStates, ...] = ()


@dataclass(frozen=True, slots=True)
class Summarizing:
    """All tasks are done; one worker computes values from the sum of the states."""

    number: int
    frozen: str
    version: Version | None
    addends: tuple[MetricStates, ...]


class Evaluations:
    """All evaluations of a job, one at a time.

    Args:
        ledger: where their rounds are opened.
        partition: the data to evaluate on; without tasks nothing is ever evaluated.
        emit: takes effects.
    """

    def __init__(
        self, ledger: Ledger, partition: TaskPartition, emit: Callable[[Effect], None]
    ) -> None:
        self._ledger = ledger
        self._partition = partition
        self._emit = emit
        self._next = 0
        self._pending = False
        self._running: AwaitingFreeze | Evaluating | Summarizing | None = None
        self.metrics: dict[str, float] = {}
        self.ended = 0
        self.last_version: Version | None = None
        """Version of the last evaluation that ended."""

    @property
    def possible(self) -> bool:
        """Whether the job has data to evaluate on."""
        return self._partition.count > 0

    @property
    def idle(self) -> bool:
        """Whether no evaluation is under way."""
        return self._running is None

    @property
    def drained(self) -> bool:
        """Whether no evaluation is under way or pending."""
        return self._running is None and not self._pending

    # --- beginnings ------------------------------------------------------------------------

    def trigger(self) -> None:
        """Start an evaluation, or the next one when the one under way has ended."""
        self._pending = self.possible

    def cancel_pending(self) -> None:
        """Drop a pending evaluation: the final one replaces it."""
        self._pending = False

    def start_on(self, frozen: str, version: Version | None) -> None:
        """Evaluate a version that the caller has frozen and will release."""
        assert self._running is None, "one evaluation at a time"
        self._begin(self._take_number(), frozen, version)

    def handle_frozen(self, name: str, version: Version) -> bool:
        """Note that the frozen version is there; False when it is not one of an evaluation."""
        match self._running:
            case AwaitingFreeze(number, wanted) if wanted == name:
                self._begin(number, name, version)
                return True
            case _:
                return False

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _begin(self, number: int, frozen: str, version: Version | None) -> None:
        self._running = Evaluating(number, frozen, version)
        self._ledger.open_round(Round(TaskType.EVALUATION, number, self._partition))
        at = "" if version is None else f" of parameter version {version}"
        facts = {"evaluation": str(number), "tasks": str(self._partition.count)}
        self._emit(
            LogEvent("EvaluationStarted", f"Evaluation {number + 1}{at} started.", facts=facts)
        )

    # --- the workflow of one -----------------------------------------------------------------

    def advance(self) -> None:
        """Do what follows from the state of the ledger."""
        match self._running:
            case None if self._pending:
                self._pending = False
                number = self._take_number()
                self._running = AwaitingFreeze(number, _own_name(number))
                self._emit(FreezeParameters(self._running.name))
            case Evaluating(number, frozen, version, tasks, addends) if not self._ledger.is_open(
                TaskType.EVALUATION, number
            ):
                if tasks:
                    self._running = Summarizing(number, frozen, version, addends)
                    self._ledger.open_round(Round(TaskType.EVALUATION_SUMMARY, number, None))
                else:
                    self._end(None)
            case _:
                pass

    def collect(self, states: MetricStates) -> None:
        """Take what one task of the running evaluation counted; ``addends`` has it from now on.

        Raises:
            MetricStateMismatch: it cannot be added to what the tasks before it counted.
        """
        running = self._running
        assert isinstance(running, Evaluating)
        known = {state.name: state for addend in running.addends for state in addend}
        for state in states:
            check_addable(known.setdefault(state.name, state), state)
        if states:
            running.addends += (states,)
        running.tasks += 1

    @property
    def addends(self) -> tuple[MetricStates, ...]:
        """The metric states of the running evaluation's tasks; only their sum matters."""
        return self._running.addends if isinstance(self._running, Evaluating) else ()

    def replace_addends(self, addends: tuple[MetricStates, ...], total: MetricStates) -> None:
        """Put the sum of the first addends in their place, if they are still there.

        Args:
            addends: what ``addends`` was before.
            total: their sum.
        """
        # States are equal if they are identical: another evaluation may have begun since.
        if isinstance(self._running, Evaluating) and self.addends[: len(addends)] == addends:
            self._running.addends = (total, *self.addends[len(addends) :])

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Finish the running evaluation, whose summary is done."""
        self._end(dict(metrics))

    def _end(self, metrics: dict[str, float] | None) -> None:
        running = self._running
        assert isinstance(running, (Evaluating, Summarizing))
        self._running = None
        self.ended += 1
        self.last_version = running.version
        name = f"Evaluation {running.number + 1}"
        if metrics is None:
            line = f"{name} has no metrics: none of its tasks succeeded."
            self._emit(LogEvent("EvaluationEnded", line, Severity.WARNING))
        else:
            self.metrics = metrics
            if running.version is not None:
                for metric, value in metrics.items():
                    # The training loss has the plain name: another curve over the same steps.
                    curve = "validation loss" if metric == "loss" else metric
                    self._emit(LogScalar(curve, running.version, value))
            ordered = sorted(metrics.items(), key=lambda item: (item[0] != "loss", item[0]))
            values = {metric: f"{value:.6g}" for metric, value in ordered}
            shown = ", ".join(f"{metric} {value}" for metric, value in values.items())
            line = f"{name}: {shown or 'no metrics'}."
            self._emit(LogEvent("EvaluationEnded", line, facts=values))
        if running.frozen == _own_name(running.number):
            self._emit(ReleaseFrozen(running.frozen))

    def task_input(self) -> tuple[str, Version | None, tuple[MetricStates, ...]]:
        """Return the input of a task of the running evaluation: frozen name, version, addends."""
        match self._running:
            case Evaluating(frozen=frozen, version=version):
                return frozen, version, ()
            case Summarizing(frozen=frozen, version=version, addends=addends):
                return frozen, version, addends
            case running:
                raise AssertionError(f"no evaluation has tasks: {running}")

    # --- snapshots -------------------------------------------------------------------------

    @property
    def rounds_to_repeat(self) -> tuple[tuple[TaskType, int], ...]:
        """Rounds under way that the next master repeats from their beginning."""
        running = self._running
        return (
            ((TaskType.EVALUATION, running.number),)
            if running and not _survives_restart(running)
            else ()
        )

    def snapshot(self) -> dict[str, Any]:
        """Return what the next master needs: JSON-able values, and arrays of metric states.

        An evaluation of a trained model continues. One of a frozen version starts again, because
        that version ended with the master.
        """
        running, next_, kept = self._running, self._next, None
        if running and _survives_restart(running):
            kept = _running_to_json(running)
        elif running:
            next_ = running.number
        return {
            "next": next_,
            "pending": self._pending or next_ != self._next,
            "running": kept,
            "metrics": dict(
                zip(self.metrics, _numbers_to_json(self.metrics.values()), strict=True)
            ),
            "ended": self.ended,
            "last_version": self.last_version,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved; the rounds of one that continues are the ledger's."""
        self._next = saved["next"]
        self._pending = saved["pending"] and self.possible
        self._running = _running_from_json(running) if (running := saved.get("running")) else None
        self.metrics = {name: float(value) for name, value in saved["metrics"].items()}
        self.ended = saved["ended"]
        version = saved["last_version"]
        self.last_version = None if version is None else Version(version)


def _survives_restart(
    running: AwaitingFreeze | Evaluating | Summarizing,
) -> TypeGuard[Evaluating | Summarizing]:
    """Return whether another master can continue it: only with a trained model."""
    return isinstance(running, (Evaluating, Summarizing)) and not running.frozen


def _running_to_json(running: Evaluating | Summarizing) -> dict[str, Any]:
    """Describe an evaluation of a trained model; its arrays become JSON by ``array_to_json``."""
    tasks = running.tasks if isinstance(running, Evaluating) else None
    addends = list(map(states_to_document, running.addends))
    return {"number": running.number, "tasks": tasks, "addends": addends}


def _running_from_json(saved: Mapping[str, Any]) -> Evaluating | Summarizing:
    """Undo ``_running_to_json``."""
    addends = tuple(map(states_from_document, saved["addends"]))
    if saved["tasks"] is None:
        return Summarizing(saved["number"], "", None, addends)
    return Evaluating(saved["number"], "", None, saved["tasks"], addends)


def _numbers_to_json(values: Iterable[float]) -> list[float | str]:
    """Convert numbers to what JSON holds exactly; it has no NaN and infinity."""
    return [value if isfinite(value) else str(value) for value in values]


def _own_name(number: int) -> str:
    """Return the name of the frozen version that evaluation ``number`` asks for itself."""
    return f"evaluation-{number}"
