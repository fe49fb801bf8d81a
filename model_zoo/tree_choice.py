"""Chooses from the rows how trees grow: how deep, from which columns, and for how many rounds.

Each candidate grows trees from four fifths of the rows and is measured with the others. Of a small table
each fifth is held out once, of a larger one the first. Then the model grows from all rows: none is lost.
"""

from collections.abc import Mapping

import numpy as np
from tree_growth import GROWTH, explain_errors, import_xgboost

CANDIDATES: tuple[Mapping[str, float], ...] = (
    {"max_depth": 6, "colsample_bynode": 0.5},
    {"max_depth": 3, "colsample_bynode": 0.5},
    {"max_depth": 3, "colsample_bynode": 1.0},
)
"""The first one suits a table of which nothing is known."""
MAX_ROUNDS = 200
"""What the choice can be."""
_MIN_ROWS, _MAX_ROWS = 50, 50_000
_FOLDS = 5
_ALL_FOLDS = 1000
"""Up to so many rows, each fold is held out once."""
_PATIENCE = 30


def can_choose(rows, outputs):
    """Return whether a table has enough rows to hold some out, and not too many to try all.

    Args:
        outputs: numbers for each row, of each of which a tree of a round is.
    """
    return rows >= _MIN_ROWS and rows * outputs <= _MAX_ROWS


def choose_growth(inputs, labels, *, parameters, candidates, is_category):
    """Return the number of the best candidate, and how many rounds it needs.

    The same rows have the same choice, whatever their order.

    Args:
        inputs: (n, inputs); NaN is missing.
        labels: (n,).
        parameters: of XGBoost.
        candidates: further parameters, of which to choose.
        is_category: which inputs are categories.

    Raises:
        ValueError: XGBoost refuses a parameter or a label.
    """
    xgboost = import_xgboost()
    kinds = ["c" if each else "q" for each in is_category]
    order = np.argsort(_hash_rows(inputs, labels), kind="stable")
    parts = np.array_split(np.arange(len(order)), _FOLDS)
    held_out = parts if len(order) <= _ALL_FOLDS else parts[:1]
    folds = [(np.setdiff1d(np.arange(len(order)), part), part) for part in held_out]
    found = []
    with explain_errors(xgboost):
        data = xgboost.DMatrix(inputs[order], labels[order], feature_types=kinds)
        for candidate in candidates:
            measured = xgboost.cv(
                {**parameters, **GROWTH, **candidate},
                data,
                MAX_ROUNDS,
                folds=folds,
                early_stopping_rounds=_PATIENCE,
                as_pandas=False,
            )
            (losses,) = (losses for name, losses in measured.items() if _is_loss(name))
            found.append((min(losses), len(found), len(losses)))
    _, best, rounds = min(found)
    return best, rounds


def _is_loss(name):
    return name.startswith("test-") and name.endswith("-mean")


def _hash_rows(inputs, labels):
    """Return a number of 64 bits for each row, in whose order rows are as if shuffled."""
    rows = np.column_stack([inputs, labels]).astype(np.float32)
    rows[np.isnan(rows)] = np.nan  # one of the many NaNs
    bits = rows.view(np.uint32).astype(np.uint64)
    factors = np.random.default_rng(1).integers(1 << 63, size=bits.shape[1], dtype=np.uint64)
    sums = bits @ (factors | np.uint64(1))
    return (sums ^ (sums >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
