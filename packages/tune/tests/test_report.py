"""The page and the table of a study."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from dataclasses import replace

from plans import make_plan

from edl_tune.core.search_space import Hyperparameter, ValueChoice, ValueRange
from edl_tune.core.study import Study, StudyRules
from edl_tune.core.trials import Trial, TrialResult, TrialState
from edl_tune.report import axes_of, page_of
from edl_tune.trial_table import csv_of, lines_of

SPACE = (
    Hyperparameter("units", ValueRange(1, 3)),
    Hyperparameter("rate", ValueRange(0.001, 0.1, None, True)),
    Hyperparameter("kind", ValueChoice(("<b>", "wide"))),
)
PLAN = make_plan(space=SPACE)
TRIALS = [
    Trial(0, {"units": 1, "rate": 0.01, "kind": "wide"}, TrialState.COMPLETE, {1: 0.5}),
    Trial(1, {"units": 3, "rate": 0.1, "kind": "<b>"}, TrialState.COMPLETE, {1: 0.9}),
    Trial(2, {"units": 2, "rate": 0.001}, TrialState.PRUNED, {1: 0.1}),
    Trial(3, {"units": 2, "rate": 0.001, "kind": "wide"}, TrialState.FAILED),
]


def make_study(trials: list[Trial]) -> Study:
    with_results = [
        replace(
            trial,
            result=TrialResult(
                trial.reported.get(1), {"accuracy": 0.5}, 2, 1000, 10, 3.0, "no\nmemory"
            ),
        )
        for trial in trials
    ]
    return Study(StudyRules(PLAN.objective, 4, 1), with_results)


def test_each_trial_with_an_objective_is_a_line() -> None:
    page = page_of(PLAN, make_study(TRIALS))
    assert "{{" not in page
    assert "<b>" not in page.replace("&lt;b&gt;", "")
    chart = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])
    lines = {line.get("data-trial"): line for line in chart.iter("polyline")}
    assert set(lines) == {"0", "1", "2"}
    assert "best" in (lines["1"].get("class") or "")
    assert list(chart.iter("polyline"))[-1] is lines["1"], "nothing hides the best"
    assert len((lines["0"].get("points") or "").split()) == 4
    assert len((lines["2"].get("points") or "").split()) == 3, "kind is not searched"


def test_a_page_of_a_study_without_results_can_be_drawn() -> None:
    assert "none yet" in page_of(PLAN, Study(StudyRules(PLAN.objective, 4, 1)))


def test_values_are_placed_between_the_ends_of_their_axis() -> None:
    units, rate, kind, objective = axes_of(PLAN, make_study(TRIALS).trials)
    assert [units.place(value) for value in (1, 2, 3)] == [0, 0.5, 1]
    assert rate.place(0.01) is not None
    assert round(rate.place(0.01) or 0, 6) == 0.5
    assert kind.place("wide") == 0.25
    assert kind.place("other") is None
    assert [objective.place(value) for value in (0.1, 0.9)] == [0, 1]
    assert [text for _, text in units.ticks()] == ["1", "2", "3"]


def test_the_table_has_all_trials() -> None:
    study = make_study(TRIALS)
    header, *rows = csv.reader("\n".join(csv_of(PLAN, study)).splitlines(keepends=True))
    assert header[:6] == ["trial", "job", "state", "units", "rate", "kind"]
    assert rows[1][:7] == ["1", "study-0001", "complete", "3", "0.1", "<b>", "0.9"]
    assert rows[2][5] == ""
    lines = lines_of(PLAN, study)
    assert len(lines) == 5
    assert lines[2].startswith("0001*")
