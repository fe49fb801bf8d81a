"""Plans of studies for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl_tune.core.objective import Objective
from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import Hyperparameter, ValueRange

PLAN = StudyPlan(
    name="study",
    objective=Objective("accuracy", is_maximized=True),
    search={"x": "0..1"},
    space=(Hyperparameter("x", ValueRange(0.0, 1.0)),),
    trials=4,
    parallel=2,
    sampler="random",
    pruner="none",
    min_epochs=1,
    seed=7,
    options={"model_zoo": "/zoo", "model_def": "circle", "data": ["/data"]},
    output="/out",
)


def make_plan(**changes: Any) -> StudyPlan:
    return replace(PLAN, **changes)
