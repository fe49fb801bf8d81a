"""On the rows that a step touches, an elementwise optimizer does to a table what Keras does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edl_master.core.identifiers import Token
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import parse_optimizer

from ..planes import A, push, row_payload, rows_of, small_plane, values_of
from ..test_keras_equality import KINDS, OPTIMIZERS, keras, opt, tf
from .test_plane_with_tables import DRAWN

IDS = np.array([3, -1, 1 << 50, 0, 8])
CLIPPING = ({"clipnorm": 0.7}, {"global_clipnorm": 0.9}, {"clipvalue": 0.4})
ELEMENTWISE, WHOLE_VARIABLE = [], []
for name, build in OPTIMIZERS.items():
    whole = parse_optimizer(opt.serialize(build())).needs_whole_variables
    (WHOLE_VARIABLE if whole else ELEMENTWISE).append(name)
ELEMENTWISE_KINDS = [
    kind
    for kind in KINDS
    if not parse_optimizer({"class_name": kind, "config": {}}).needs_whole_variables
]


def train_both(optimizer: Any, steps: int) -> None:
    """A dense variable and a table of five rows, under Keras and in the plane."""
    parsed = parse_optimizer(opt.serialize(optimizer))
    plane = small_plane(Async(), parsed, state=0, tables=(DRAWN,))
    plane.grant(A, Token(1))
    variables = [keras.Variable(np.zeros(2, np.float32)), keras.Variable(rows_of(plane, IDS))]
    optimizer.build(variables)
    apply = tf.function(lambda gradients: optimizer.apply(gradients, variables))
    rng = np.random.default_rng(2)
    for step in range(steps):
        dense, rows = rng.normal(size=2), rng.normal(size=(IDS.size, 3))
        apply([tf.constant(g.astype(np.float32)) for g in (dense, rows)])
        order = rng.permutation(IDS.size)
        push(plane, A, 1, step, dense, rows=(row_payload(IDS[order], rows[order]),))
    tolerance = {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(values_of(plane), variables[0].numpy(), **tolerance)
    np.testing.assert_allclose(rows_of(plane, IDS), variables[1].numpy(), **tolerance)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_rows_equal_keras(name: str) -> None:
    train_both(OPTIMIZERS[name](), 60)


@pytest.mark.parametrize("name", WHOLE_VARIABLE)
def test_an_optimizer_that_needs_whole_variables_is_refused(name: str) -> None:
    parsed = parse_optimizer(opt.serialize(OPTIMIZERS[name]()))
    with pytest.raises(OptimizerUnsupported, match="needs whole variables, with embedding tables"):
        small_plane(Async(), parsed, state=0, tables=(DRAWN,))


@pytest.mark.parametrize("number", range(len(ELEMENTWISE_KINDS)))
def test_options_equal_keras(number: int) -> None:
    """Every optimizer decays weights, and each way to clip is tried with some of them.

    Gradients are clipped before an optimizer gets them, in the same way for all.
    """
    clipping = CLIPPING[number % len(CLIPPING)]
    kind = getattr(opt, ELEMENTWISE_KINDS[number])
    train_both(kind(learning_rate=0.01, weight_decay=0.05, **clipping), 30)


def test_rows_that_a_step_does_not_touch_stay_with_their_slots() -> None:
    adam = parse_optimizer({"class_name": "Adam", "config": {"learning_rate": 0.1}})
    plane = small_plane(Async(), adam, state=0, tables=(DRAWN,))
    plane.grant(A, Token(1))
    push(plane, A, 1, 0, [0, 0], rows=(row_payload([1, 2], np.ones((2, 3))),))
    before = rows_of(plane, [2])
    for step in range(1, 5):
        push(plane, A, 1, step, [0, 0], rows=(row_payload([1], np.ones((1, 3))),))
    np.testing.assert_array_equal(rows_of(plane, [2]), before)
