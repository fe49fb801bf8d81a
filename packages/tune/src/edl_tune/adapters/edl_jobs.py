"""Trials as jobs of edl."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edl.plugins.backends import JobBackend, MasterUnreachable, StatusReport
from edl.plugins.errors import EdlError, ErrorCode
from edl.plugins.job_status import JobEvent, JobState, JobStatus
from edl.plugins.jobs import JobSubmitter
from edl.plugins.options import Given, Verb
from edl_runtime.model.model_params import parse_params
from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import Value, ValueTarget
from edl_tune.core.trials import SeenJob, TrialJobPhase, TrialResult
from edl_tune.ports import PAUSE

HP = "hp"
"""The parameter of model functions that gets what they ask for."""

_PHASES = {
    JobState.SUCCEEDED: TrialJobPhase.SUCCEEDED,
    JobState.FAILED: TrialJobPhase.FAILED,
    JobState.CANCELLED: TrialJobPhase.STOPPED,
    JobState.LOST: TrialJobPhase.LOST,
    JobState.NOT_STARTED: TrialJobPhase.LOST,
}
_OF_VALUES = ("NAN_LOSS",)
_ENDED, _STOPPED = "EvaluationEnded", "JobStopped"
_NUMBER = re.compile(r"Evaluation (\d+)")
_LEARNING_RATE = "learning-rate"


class EdlJobs:
    """The ``TrialJobs`` of a study.

    Args:
        folder: of the study; the models of its trials are in ``models``.
    """

    def __init__(
        self,
        plan: StudyPlan,
        folder: Path,
        submitter: JobSubmitter,
        say: Callable[[str], object],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._submitter = submitter
        self._say = say
        self._evaluations: dict[int, dict[int, Mapping[str, float]]] = {}
        self._stops: dict[int, str] = {}
        self._read: dict[int, int] = {}

    def name(self, number: int) -> str:
        """Return the name of the job of a trial."""
        return job_name(self._plan.name, number)

    def look(self, number: int) -> SeenJob:
        """Return what is seen of a job; see ``TrialJobs``."""
        try:
            backend = self._submitter.catalog.find(self.name(number))
            report = backend.status(self.name(number))
        except EdlError as error:
            if error.code == ErrorCode.JOB_NOT_FOUND:
                return SeenJob(TrialJobPhase.MISSING)
            raise
        if report.is_passing:
            return SeenJob(
                TrialJobPhase.MISSING
            )  # the next submission waits for it, or replaces it
        return self._describe(number, backend, report)

    def start(self, number: int, values: Mapping[str, Value]) -> None:
        """Start the job of a trial; see ``TrialJobs``."""
        plan = self._submitter.prepare(Verb.TRAIN, self.flags(number, values), cwd=self._folder)
        self._submitter.start(plan, self._say)

    def resume(self, number: int) -> None:
        """Continue a job; see ``TrialJobs``."""
        name = self.name(number)
        self._submitter.catalog.find(name).continuation.resume(name, self._say)

    def stop(self, number: int, reason: str) -> None:
        """Ask a job to stop; see ``TrialJobs``."""
        name = self.name(number)
        with suppress(MasterUnreachable):
            self._submitter.catalog.find(name).stop(name, reason)

    def model(self, number: int) -> Path:
        """Return the folder of the trained model of a trial."""
        return self._folder / "models" / f"{number:04}"

    def flags(self, number: int, values: Mapping[str, Value]) -> dict[str, Given]:
        """Return the options of the job of a trial."""
        options = options_with(self._plan, values)
        options |= {"name": self.name(number), "output": str(self.model(number))}
        if self._plan.code:
            options["model_zoo"] = self._plan.code
        return {name: Given(value, f"edl tune, {name}") for name, value in options.items()}

    def _describe(self, number: int, backend: JobBackend, report: StatusReport) -> SeenJob:
        status, name = report.status, self.name(number)
        phase = _PHASES.get(status.state, TrialJobPhase.ALIVE)
        if phase is not TrialJobPhase.ALIVE:
            status = backend.finalize(name, status)
        if phase is not TrialJobPhase.ALIVE or report.answered:
            self._note(number, backend.events(name, self._read.get(number, 0)))
        failure = status.failure
        return SeenJob(
            phase,
            dict(self._evaluations.get(number, {})),
            _result(status),
            failure,
            failure is not None and failure.code in _OF_VALUES,
            PAUSE in self._stops.get(number, ""),
        )

    def _note(self, number: int, events: Any) -> None:
        found = self._evaluations.setdefault(number, {})
        for event in events:
            self._read[number] = max(self._read.get(number, 0), event.number)
            if event.kind == _STOPPED:
                self._stops[number] = event.message
            if event.kind == _ENDED and (metrics := _metrics(event)):
                found[_number(event)] = metrics


def job_name(study: str, number: int) -> str:
    """Return the name of the job of a trial."""
    return f"{study}-{number:04}"


def options_with(plan: StudyPlan, values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the options of a job that trains with some values of the search space."""
    options = dict(plan.options)
    params = parse_params(options.get("params") or "")
    hp = dict(params.get(HP) or {})
    for each in plan.space:
        if each.name not in values:
            continue
        match each.target:
            case ValueTarget.HP:
                hp[each.name] = values[each.name]
            case ValueTarget.PARAMETER:
                params[each.name] = values[each.name]
            case ValueTarget.OPTION if each.name == _LEARNING_RATE:
                options["set"] = f"{each.name}={values[each.name]}"
            case ValueTarget.OPTION:
                options[each.name.replace("-", "_")] = values[each.name]
    if hp:
        params[HP] = hp
    return {**options, "params": params} if params else options


def _result(status: JobStatus) -> TrialResult:
    return TrialResult(
        metrics=dict(status.metrics),
        epochs=status.epochs_done,
        records=status.records_trained,
        steps=status.steps,
        seconds=round(status.seconds, 3),
        error=status.failure.what if status.failure is not None else "",
    )


def _number(event: JobEvent) -> int:
    found = _NUMBER.match(event.message)
    return int(found[1]) if found else 0


def _metrics(event: JobEvent) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in event.facts.items()}
    except ValueError:
        return {}
