"""What a study is to do: the record from which every later command continues it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from edl_tune.core.objective import Objective
from edl_tune.core.search_space import Hyperparameter, from_dict, grid_of

SAMPLERS = ("tpe", "random", "grid")
PRUNERS = ("none", "asha")

MAY_CHANGE = ("trials", "parallel")
"""What a later command may change."""

_MADE = ("seed", "space", "code")
"""The fields that are made when a study begins."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The plan of a study.

    Attributes:
        search: the search space as the user wrote it, by name.
        space: the hyperparameters in the order in which they are proposed, with those of the file.
        min_epochs: evaluations of a trial before it may be pruned.
        seed: of the sampler.
        options: of each trial's job, by name; paths are absolute.
        output: where the best model is written.
        code: the copy of the model files that trials train; empty: those that the options name.
    """

    name: str
    objective: Objective
    search: Mapping[str, str]
    space: tuple[Hyperparameter, ...]
    trials: int
    parallel: int
    sampler: str
    pruner: str
    min_epochs: int
    seed: int
    options: Mapping[str, Any]
    output: str
    code: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON and for ``plan_of``."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            **values,
            "objective": self.objective.name,
            "direction": "max" if self.objective.is_maximized else "min",
            "space": [each.to_dict() for each in self.space],
            "search": dict(self.search),
            "options": dict(self.options),
        }

    def changes(self, other: StudyPlan) -> list[str]:
        """Return the names of what another plan of this name may not change, but does."""
        mine, others = self.to_dict(), other.to_dict()
        named = [name for name in mine if name not in (*MAY_CHANGE, *_MADE, "options")]
        found = [name for name in named if mine[name] != others[name]]
        options = sorted({*self.options, *other.options})
        return found + [
            name for name in options if self.options.get(name) != other.options.get(name)
        ]

    def with_limits(self, trials: int | None, parallel: int | None) -> StudyPlan:
        """Return the plan with other limits; None leaves one as it is.

        A grid has no more trials than combinations.

        Raises:
            Problem: USAGE; the grid has no end.
        """
        wanted = self.trials if trials is None else trials
        if self.sampler == "grid":
            wanted = min(wanted, math.prod(map(len, grid_of(self.space).values())))
        return replace(self, trials=wanted, parallel=parallel or self.parallel)


def plan_of(values: Mapping[str, Any]) -> StudyPlan:
    """Return a plan from what ``to_dict`` gave."""
    known = {name: value for name, value in values.items() if name != "direction"}
    metric = Objective(values["objective"].removeprefix("val_"), values["direction"] == "max")
    space = tuple(map(from_dict, values["space"]))
    return StudyPlan(**{**known, "objective": metric, "space": space})
