"""The objective of a study: the metric that decides which trial is the best."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from edl.plugins.errors import Problem, usage
from edl.plugins.texts import did_you_mean

PREFIX = "val_"
_MAX = re.compile(
    r"(^|_)(acc|accuracy|auc|precision|recall|f1|fbeta|iou|r2|specificity|sensitivity)(_|$)"
    r"|accuracy|auc|f1_?score|mean_?io_?u|cosine_similarity|r2_?score"
)
_MIN = re.compile(r"loss|error|mse|mae|mape|msle|rmse|crossentropy|hinge|divergence|perplexity")

_USUAL = tuple(PREFIX + name for name in ("accuracy", "loss", "auc", "precision", "recall", "mae"))


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric of evaluations, as ``edl status`` names it, and whether more of it is better."""

    metric: str
    is_maximized: bool

    @property
    def name(self) -> str:
        """The name as Keras writes it: ``val_accuracy``."""
        return PREFIX + self.metric

    def is_better(self, value: float, other: float | None) -> bool:
        """Return whether a value is better than another one; any number is better than none."""
        if math.isnan(value):
            return False
        if other is None or math.isnan(other):
            return True
        return value > other if self.is_maximized else value < other


def read_objective(name: str, direction: str | None) -> Objective:
    """Return the objective that a user names, such as ``val_accuracy``.

    Args:
        direction: ``max`` or ``min``; None: by the convention of Keras for names of metrics.

    Raises:
        Problem: USAGE; the name does not say which is better.
    """
    metric = name.strip().removeprefix(PREFIX)
    if direction is not None:
        return Objective(metric, direction == "max")
    if _MIN.search(metric):
        return Objective(metric, is_maximized=False)
    if _MAX.search(metric):
        return Objective(metric, is_maximized=True)
    raise usage(
        f"{name} does not say whether more of it is better",
        where="--objective",
        remedy=f"{did_you_mean(name, _USUAL)} Give --direction max or min for other names.".strip(),
    )


def check_reported(objective: Objective, metrics: Iterable[str]) -> None:
    """Check that evaluations have the metric. Raises: Problem: USAGE."""
    known = [PREFIX + metric for metric in metrics]
    if objective.name not in known:
        raise Problem(
            "USAGE",
            f"evaluations of this model have no {objective.name}",
            where=f"--objective {objective.name}",
            remedy=did_you_mean(objective.name, known)
            or f"They have {', '.join(known)}; --eval-metrics-fn adds metrics.",
        )
