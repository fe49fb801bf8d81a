"""The composition root: opens a study with its jobs, its store and its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edl.plugins.commands import terminal
from edl.plugins.errors import EdlError, ErrorCode, error_of
from edl.plugins.jobs import job_submitter
from edl.plugins.texts import plural
from edl_tune.adapters.edl_jobs import EdlJobs, job_name
from edl_tune.adapters.optuna_store import OptunaStore
from edl_tune.adapters.study_folder import StudyFolder
from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import describe
from edl_tune.core.study import Study, StudyRules
from edl_tune.core.trials import Trial, TrialState
from edl_tune.planning import StudyRequest, check_same, complete, read_request
from edl_tune.report import page_of
from edl_tune.study_runner import StudyRunner
from edl_tune.trial_table import csv_of, lines_of, objects_of


@dataclass(frozen=True, slots=True)
class StudySummary:
    """The end of a study, for people and programs.

    Attributes:
        lines: the table of trials, and what to do next.
        failure: why the study has no best model; None if it has one.
    """

    values: dict[str, Any]
    lines: list[str]
    failure: EdlError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what ``-o json`` prints."""
        return self.values

    def raise_failure(self) -> None:
        """Raises: EdlError: the study has no best model."""
        if self.failure is not None:
            raise self.failure


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """A study that this command has alone."""

    plan: StudyPlan
    runner: StudyRunner
    folder: StudyFolder
    jobs: EdlJobs

    def finish(self, study: Study) -> StudySummary:
        """Write table, page and best model, and return the summary.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        write_reports(self.folder, self.plan, study)
        best = study.best
        output = Path(self.plan.output)
        if best is not None:
            self.folder.publish(self.jobs.model(best.number), output, best.number)
        values = {
            "study": self.plan.name,
            "state": "FAILED" if best is None else "SUCCEEDED",
            "objective": self.plan.objective.name,
            "best": None if best is None else objects_of(self.plan, [best])[0],
            "output": str(output) if best is not None else "",
            "page": str(self.folder.report),
            "table": str(self.folder.table),
            "trials": objects_of(self.plan, study.trials),
        }
        lines = lines_of(self.plan, study)
        if best is not None:
            lines += [
                "",
                f"best     {describe(best.values)}",
                f"output   {output}",
                f"page     {self.folder.report}",
            ]
        return StudySummary(values, lines, self._failure(study))

    def _failure(self, study: Study) -> EdlError | None:
        if study.failure is not None:
            error = error_of(study.failure)
            error.remedy = f"{error.remedy} Then: edl tune --resume {self.plan.name}".strip()
            return error
        if study.best is not None:
            return None
        return EdlError(
            ErrorCode.USER_CODE,
            f"none of {plural(len(study.trials), 'trial')} is complete",
            where=self.plan.name,
            remedy=f"edl logs {job_name(self.plan.name, 0)} shows what the first one did.",
        )


@contextmanager
def open_study(
    request: StudyRequest, resumed: str, cwd: Path, timeout_s: float | None, *, quiet: bool
) -> Iterator[OpenStudy]:
    """Yield the study that a command asks for: a new one, or one that exists.

    Args:
        resumed: name of the study to continue; empty: that of the request.
        timeout_s: no trial starts later than this, in seconds.

    Raises:
        EdlError: something is wrong; no trial has started.
    """
    say = (lambda _: None) if quiet else terminal.message
    asked = None if resumed else read_request(request, cwd)
    folder = StudyFolder(resumed or (asked.name if asked is not None else ""))
    # There is no lock for a study that does not exist.
    found = folder.read_plan() if asked is None else asked
    submitter = job_submitter(found.options)
    with submitter.catalog, folder.lock():
        if folder.exists:
            plan = folder.read_plan()
            if asked is not None:
                check_same(asked, plan)
            plan = plan.with_limits(request.trials, request.parallel)
            folder.write_plan(plan)
            say(f"continuing the study {plan.name}")
        else:
            assert asked is not None, "a study that is continued exists"
            plan = complete(asked, submitter)
            zoo = Path(plan.options["model_zoo"])
            if zoo.is_dir():
                plan = replace(plan, code=str(folder.copy_code(zoo, plan.options)))
            folder.write_plan(plan)
            say(f"the study {plan.name} has {plural(plan.trials, 'trial')}")
        jobs = EdlJobs(plan, folder.path, submitter, say)
        store = OptunaStore(folder.journal, plan)
        runner = StudyRunner(
            StudyRules(plan.objective, plan.trials, plan.parallel),
            jobs,
            store,
            LineDisplay(plan, say),
            timeout_s=timeout_s,
            changed=lambda study: write_reports(folder, plan, study),
        )
        yield OpenStudy(plan, runner, folder, jobs)


def write_reports(folder: StudyFolder, plan: StudyPlan, study: Study) -> None:
    """Write the table and the page of a study as it is."""
    folder.write_table(csv_of(plan, study))
    folder.write_report(page_of(plan, study))


class LineDisplay:
    """A ``StudyDisplay`` of one line for each beginning and end."""

    def __init__(self, plan: StudyPlan, say: Any) -> None:
        self._plan = plan
        self._say = say

    def show_start(self, trial: Trial, *, resumes: bool) -> None:
        """Show that a job starts, or continues."""
        verb = "continues" if resumes else "starts"
        self._say(f"{job_name(self._plan.name, trial.number)} {verb}: {describe(trial.values)}")

    def show_end(self, trial: Trial, best: Trial | None) -> None:
        """Show how a trial has ended."""
        result = trial.result
        text = f"{job_name(self._plan.name, trial.number)} {trial.state.value}"
        if result.objective is not None:
            text += f": {self._plan.objective.name} {result.objective:.5g}"
        if trial.state in (TrialState.FAILED, TrialState.STOPPED):
            text += f": {result.error}"
        if best is not None and best.number == trial.number:
            text += ", the best so far"
        self._say(text)
