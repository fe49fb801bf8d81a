"""The table of a study's trials: for people, for programs and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from edl.plugins.commands import table
from edl.plugins.texts import count, duration
from edl_tune.adapters.edl_jobs import job_name
from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import show_value
from edl_tune.core.study import Study
from edl_tune.core.trials import Trial


def header_of(plan: StudyPlan) -> list[str]:
    """Return the names of the columns for people."""
    names = [each.name for each in plan.space]
    return ["TRIAL", "STATE", *names, plan.objective.name, "EPOCHS", "RECORDS", "TIME"]


def cells_of(plan: StudyPlan, trial: Trial, *, is_best: bool) -> list[str]:
    """Return the row of a trial for people, with a star at the best trial."""
    return [
        f"{trial.number:04}{'*' if is_best else ''}",
        trial.state.value,
        *(show_value(trial.values.get(each.name, "-")) for each in plan.space),
        "-" if trial.result.objective is None else f"{trial.result.objective:.5g}",
        str(trial.result.epochs),
        count(trial.result.records),
        duration(trial.result.seconds),
    ]


def lines_of(plan: StudyPlan, study: Study) -> list[str]:
    """Return the lines of the table for people."""
    best = study.best
    return table(
        header_of(plan),
        [
            cells_of(plan, trial, is_best=best is not None and trial.number == best.number)
            for trial in study.trials
        ],
    )


def csv_of(plan: StudyPlan, study: Study) -> list[str]:
    """Return the lines of the table as CSV, with all metrics; a value is empty where none is."""
    names = [each.name for each in plan.space]
    metrics = sorted({name for trial in study.trials for name in trial.result.metrics})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    counts = ("epochs", "records", "steps", "seconds")
    shown = [f"val_{name}" for name in metrics]
    writer.writerow(["trial", "job", "state", *names, "objective", *shown, *counts, "error"])
    for trial in study.trials:
        values = [trial.values.get(name, "") for name in names]
        result = trial.result
        objective = "" if result.objective is None else result.objective
        writer.writerow(
            [
                *(trial.number, job_name(plan.name, trial.number), trial.state.value),
                *(*values, objective),
                *(result.metrics.get(name, "") for name in metrics),
                *(getattr(result, name) for name in counts),
                result.error,
            ]
        )
    return text.getvalue().splitlines()


def objects_of(plan: StudyPlan, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the trials as plain values for JSON."""
    return [
        {
            "trial": trial.number,
            "job": job_name(plan.name, trial.number),
            "state": trial.state.value,
            "values": dict(trial.values),
            "objective": trial.result.objective,
            "reported": [trial.reported[number] for number in sorted(trial.reported)],
            "metrics": dict(trial.result.metrics),
            "epochs": trial.result.epochs,
            "records_trained": trial.result.records,
            "steps": trial.result.steps,
            "seconds": trial.result.seconds,
            **({"error": trial.result.error} if trial.result.error else {}),
        }
        for trial in trials
    ]
