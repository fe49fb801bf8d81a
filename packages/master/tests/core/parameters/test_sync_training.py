"""Training with several synchronous workers is training with one large minibatch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.identifiers import TaskKey, Token, Version
from edl_master.core.parameters.layout import Array, Layout, Variable
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.permits import PermitGranted
from edl_master.core.parameters.push import PushOutcome

from .planes import A, ParameterPlane, a_push, training_task

FEATURES = 3
LAYOUT = Layout(
    [
        Variable("kernel", (FEATURES,), "float64", True),
        Variable("bias", (), "float64", True),
        Variable("moving_mean", (FEATURES,), "float64", False),
    ]
)
SCHEDULE = {
    "class_name": "ExponentialDecay",
    "config": {"initial_learning_rate": 0.1, "decay_steps": 5, "decay_rate": 0.9},
}


def optimizer(name: str, **config: Any) -> Optimizer:
    return parse_optimizer({"class_name": name, "config": config})


OPTIMIZERS = [
    optimizer("SGD", learning_rate=0.1, momentum=0.9, nesterov=True),
    optimizer("Adam", learning_rate=SCHEDULE, global_clipnorm=1.0),
    optimizer("AdamW", learning_rate=0.05, weight_decay=0.02, use_ema=True),
    optimizer("Nadam", learning_rate=0.05),
]


def new_plane(chosen: Optimizer, mode: UpdateMode) -> ParameterPlane:
    plane = ParameterPlane(LAYOUT, chosen, mode)
    plane.initialize(np.zeros(LAYOUT.parameter_nbytes // 8))
    return plane


def values(plane: ParameterPlane) -> Array:
    out = np.empty(LAYOUT.parameter_nbytes // 8)
    plane.read_parameters(out)
    return out


class LinearWorker:
    """Computes the squared error's gradient of ``y = kernel x + bias``, and a moving mean."""

    def __init__(self, plane: ParameterPlane, task: TaskKey, token: int, reduction: Reduction):
        self.plane, self.task, self.token, self.reduction = plane, task, Token(token), reduction
        self.minibatch = plane.grant(task, self.token)

    def train(self, x: Array, y: Array) -> bool:
        granted = self.plane.request_permit(self.task, self.token)
        assert isinstance(granted, PermitGranted)
        now = values(self.plane)
        error = x @ now[:FEATURES] + now[FEATURES] - y
        gradient = 2 * np.append(x.T @ error, error.sum())
        if self.reduction is Reduction.MEAN:
            gradient = gradient / len(x)
        moved = 0.1 * (x.mean(axis=0) - now[FEATURES + 1 :])
        result = self.plane.push(
            a_push(self.task, self.token, self.minibatch, len(x), granted.version, gradient, moved)
        )
        assert result.outcome is PushOutcome.APPLIED
        self.minibatch += 1
        return result.new_version


@pytest.mark.parametrize("reduction", Reduction)
@pytest.mark.parametrize("chosen", OPTIMIZERS, ids=lambda c: c.name)
def test_three_workers_equal_one_process_with_the_large_minibatch(
    chosen: Optimizer, reduction: Reduction
) -> None:
    """They do so with unequal minibatches, too, and with too few of them at the end."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(200, FEATURES)) + 1
    y = x @ [1.0, -2.0, 0.5] + 3
    together = new_plane(chosen, Sync(3, reduction))
    alone = new_plane(chosen, Sync(1, reduction))
    workers = [LinearWorker(together, training_task(n), n + 1, reduction) for n in range(3)]
    one = LinearWorker(alone, A, 1, reduction)
    for begin in range(0, len(x), 20):
        at = begin
        for worker, size in zip(workers, (8, 5, 7), strict=True):
            worker.train(x[at : at + size], y[at : at + size])
            at += size
        one.train(x[begin:at], y[begin:at])
        np.testing.assert_allclose(values(together), values(alone), rtol=1e-9, atol=1e-12)
    assert together.version == alone.version == 10
    workers[0].train(x[:8], y[:8])
    workers[1].train(x[8:11], y[8:11])
    assert together.flush()
    one.train(x[:11], y[:11])
    np.testing.assert_allclose(values(together), values(alone), rtol=1e-9, atol=1e-12)
    assert np.abs(values(alone)).max() > 0.1, "nothing was trained"


MODES = st.one_of(
    st.just(Async()),
    st.builds(Bounded, st.integers(0, 3)),
    st.builds(Sync, st.integers(1, 3), st.sampled_from(Reduction)),
)


@settings(max_examples=60, deadline=None)
@given(
    chosen=st.sampled_from(OPTIMIZERS),
    mode=MODES,
    seed=st.integers(0, 1000),
    restarts=st.sets(st.integers(0, 20)),
    flushes=st.sets(st.integers(0, 20)),
)
def test_training_on_from_a_snapshot_equals_never_having_stopped(
    chosen: Optimizer, mode: UpdateMode, seed: int, restarts: set[int], flushes: set[int]
) -> None:
    rng = np.random.default_rng(seed)
    steady = new_plane(chosen, mode)
    stopped = new_plane(chosen, mode)
    for plane in (steady, stopped):
        plane.grant(A, Token(1))
    for minibatch in range(20):
        gradient, delta = rng.normal(size=FEATURES + 1), rng.normal(size=FEATURES)
        records = int(rng.integers(1, 9))
        if minibatch in restarts:
            snapshot = stopped.snapshot()
            meta = json.loads(json.dumps(snapshot.meta))
            stopped = ParameterPlane.restore(replace(snapshot, meta=meta), chosen, mode)
        outcomes = [
            plane.push(
                a_push(A, Token(1), minibatch, records, Version(plane.version), gradient, delta)
            )
            for plane in (steady, stopped)
        ]
        assert outcomes[0] == outcomes[1]
        if minibatch in flushes:
            assert steady.flush() == stopped.flush()
    one, other = steady.snapshot(), stopped.snapshot()
    assert one.meta == other.meta
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
