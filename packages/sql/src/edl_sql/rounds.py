"""Models that learn from all rows at once, such as trees: each epoch of a job is one minibatch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edl.plugins.errors import usage
from edl.plugins.texts import plural
from edl_sql.language.statements import Train
from edl_sql.zoos import OWN_ZOO, copy_with_xgboost

_PROCESSES = "processes"
_ROUNDS = 100
_MAX_ROUNDS, _MAX_ROWS = 200, 50_000
"""What the trees of the zoo choose at most, and for how many rows."""
_CHOSEN_TOGETHER = 2
"""Rounds in an epoch, so that there are no more epochs than without a choice."""
_MAX_RECORDS = 2_000_000
_MIN_VALUES_PER_S = 10_000
"""Of a worker that reads all rows and grows trees: a twentieth of what it reads in a second of
processor time, since other processes may use the processors, too."""
_MIN_COLUMNS = 20
"""With fewer, growing trees and predicting with them takes longer than reading."""
_MIN_STALL_S, _MIN_CHOOSING_S = 60.0, 300.0
_NOT_CHOSEN = frozenset(("num_boost_round", "early_stopping_rounds"))
"""A statement with one of them says how many rounds there are."""
_OF_EPOCHS = ("num_epochs", "minibatch_size", "records_per_task", "local_steps", "optimizer")


def check_rounds(statement: Train, options: Mapping[str, Any], *, in_rounds: bool) -> None:
    """Check that a statement does not choose epochs of a model that learns in rounds.

    Args:
        options: of the job, those of the statement among them.

    Raises:
        Problem: the statement does, or has no rounds, or this machine lacks XGBoost.
    """
    for name in _OF_EPOCHS if in_rounds else ():
        if name in statement.settings:
            raise usage(
                f"{statement.model_def} learns from all rows at once, and has no {name}",
                where=statement.positions.mark("WITH"),
                remedy="Leave it out. num_boost_round says how often it learns from them.",
            )
    rounds = statement.params.get("num_boost_round")
    if in_rounds and isinstance(rounds, int) and rounds < 1:
        raise usage(
            f"num_boost_round is {rounds}, and must be at least 1",
            where=statement.positions.mark("WITH", "num_boost_round"),
        )
    is_here = options.get("platform", _PROCESSES) == _PROCESSES
    if statement.model_def.startswith("trees.") and is_here and find_spec("xgboost") is None:
        raise usage(
            "trees are grown by XGBoost, which is not installed here",
            where=statement.positions.mark("TRAIN"),
            remedy="pip install 'edl-sql[trees]'",
        )


def describe_epochs(params: Mapping[str, Any], epochs: int, *, in_rounds: bool) -> str:
    """Return how many epochs a job has, and what it does in them that users may not expect."""
    if not in_rounds or "num_boost_round" in params:
        return plural(epochs, "epoch")
    return (
        f"at most {plural(epochs, 'epoch')}: the first one holds out rows to choose how deep trees "
        "are and how many, then trees grow from all rows; num_boost_round=100 chooses nothing"
    )


def plan_rounds(
    schema: Mapping[str, Any],
    params: dict[str, Any],
    options: Mapping[str, Any],
    zoo: str,
    folder: Path,
) -> dict[str, Any]:
    """Return the options of a job in which each epoch is one minibatch of all rows.

    Args:
        schema: of the rows.
        params: of the model; what depends on the number of rows is added.
        options: that the user chose for the job.
        zoo: that has the model.
        folder: for files of the job.
    """
    rows = int(schema["rows"])
    if "seed" in options:
        params.setdefault("seed", options["seed"])
    chooses = _NOT_CHOSEN.isdisjoint(params) and rows <= _MAX_ROWS
    if chooses:
        rounds, together = _MAX_ROUNDS, _CHOSEN_TOGETHER
    else:
        rounds, together = params.setdefault("num_boost_round", _ROUNDS), 1
    together = params.setdefault(
        "rounds_per_epoch", max(together, -(-rounds * rows // _MAX_RECORDS))
    )
    planned: dict[str, Any] = {
        "num_epochs": -(-rounds // together),
        "minibatch_size": rows,
        "records_per_task": rows,
        "local_steps": 2,
    }
    if "stall_timeout" not in options:
        columns = max(_MIN_COLUMNS, len(schema["columns"]))
        planned["stall_timeout"] = max(
            _MIN_CHOOSING_S if chooses else _MIN_STALL_S, rows * columns / _MIN_VALUES_PER_S
        )
    is_here = options.get("platform", _PROCESSES) == _PROCESSES
    if zoo == str(OWN_ZOO) and not is_here:  # the image that is made of it needs XGBoost
        planned["model_zoo"] = copy_with_xgboost(folder / "zoo")
    return planned
