"""Rounds of gradient boosting by XGBoost, whose trees become arrays of ``TreeEnsemble``."""

import json
import os
from contextlib import contextmanager

import numpy as np
from tree_ensemble import NO_SPLIT

_LOGIT = ("binary:logistic", "reg:logistic")
_MIN_SCORE = 1e-6
"""XGBoost's own bound for a logit: labels that are all 0 or all 1 have a finite one."""
LOGARITHM = ("count:poisson", "reg:gamma", "reg:tweedie")
"""Objectives whose trees add up to the logarithm of a prediction."""
GROWTH = {
    "tree_method": "hist",
    "max_cat_to_onehot": 1 << 24,
    "verbosity": 0,  # it warns of parameters that an objective does not have
}
"""Parameters of XGBoost that statements do not set."""


def import_xgboost():
    """Return XGBoost.

    Raises:
        ImportError: it is not installed.
    """
    # OpenMP reads it when it is loaded. By default its threads wait for each other in loops: where other
    # processes use the processors, too, trees then take ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import xgboost
    except ImportError:
        raise ImportError(
            "trees are grown by XGBoost, which is not installed where this job runs: "
            "pip install 'edl-sql[trees]', or xgboost-cpu in the requirements.txt of the model zoo"
        ) from None
    return xgboost


@contextmanager
def explain_errors(xgboost):
    """Raise what XGBoost refuses as a ValueError with its reason."""
    try:
        yield
    except xgboost.core.XGBoostError as error:  # the lines behind the first are a stack of C++
        raise ValueError(f"XGBoost: {str(error).splitlines()[0]}") from None


def grow(inputs, labels, margins, intercept, *, parameters, is_category, levels, rounds):
    """Grow some rounds of trees.

    A round depends only on the rows and on the margins that the trees before have given them, so any
    worker can go on with the next one.

    Args:
        inputs: (n, inputs); NaN is missing.
        labels: (n,).
        margins: what the trees so far add up to: (n, outputs).
        intercept: (outputs,); what the first round finds is returned.
        parameters: of XGBoost.
        is_category: which inputs are categories.
        levels: of splits that the arrays have.
        rounds: the numbers of those to grow, a range.

    Returns:
        splits, leaves and covers of the new trees, the intercept and the new margins.

    Raises:
        ValueError: XGBoost refuses a parameter or a label.
    """
    xgboost, first = import_xgboost(), rounds.start
    kinds = ["c" if each else "q" for each in is_category]
    given = {
        **parameters,
        **GROWTH,
        "seed": parameters["seed"] + first,
    }
    with explain_errors(xgboost):
        data = xgboost.QuantileDMatrix(
            inputs, labels, feature_types=kinds, max_bin=parameters.get("max_bin", 256)
        )
        if first:
            data.set_base_margin(margins[:, 0] if margins.shape[1] == 1 else margins)
        booster = xgboost.Booster(given, [data])
        for number in range(len(rounds)):
            booster.update(data, number)
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    if not first:
        score = np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64)
        intercept = np.broadcast_to(_margin_of(score, parameters["objective"]), intercept.shape)
    arrays = [_arrays(tree, levels) for tree in learner["gradient_booster"]["model"]["trees"]]
    splits, leaves, covers = (np.stack(each) for each in zip(*arrays, strict=True))
    margins = booster.predict(data, output_margin=True).reshape(margins.shape)
    return splits, leaves, covers, intercept.astype(np.float32), margins


def _margin_of(score, objective):
    if objective in _LOGIT:
        score = np.clip(score, _MIN_SCORE, 1 - _MIN_SCORE)
        return np.log(score / (1 - score))
    return np.log(np.maximum(score, _MIN_SCORE)) if objective in LOGARITHM else score


def _arrays(tree, levels):
    """Return splits, leaves and covers of a tree of XGBoost in the shape of a full one."""
    splits = np.zeros((2**levels - 1, 3), np.float32)
    splits[:, 0] = NO_SPLIT
    leaves, covers = np.zeros((2, 2**levels), np.float32)
    categories = {
        node: tree["categories"][begin]
        for node, begin in zip(tree["categories_nodes"], tree["categories_segments"], strict=True)
    }
    waiting = [(0, 0, 0)]
    while waiting:
        node, at, level = waiting.pop()
        left = tree["left_children"][node]
        if left == -1:
            leaf = (at - 2**level + 1) << (levels - level)
            leaves[leaf] = tree["split_conditions"][node]
            covers[leaf] = tree["sum_hessian"][node]
            continue
        threshold = categories.get(node, tree["split_conditions"][node])
        splits[at] = tree["split_indices"][node], threshold, not tree["default_left"][node]
        waiting += [
            (left, 2 * at + 1, level + 1),
            (tree["right_children"][node], 2 * at + 2, level + 1),
        ]
    return splits, leaves, covers
