"""Update rules against their formulas, and refusals; needs no TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from edl_master.core.parameters import arithmetic
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import ArenaKey, Array, Layout, Variable
from edl_master.core.parameters.model_check import check_fit
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import EXCLUDED_FROM_DECAY, Optimizer, parse_optimizer
from edl_master.core.parameters.updater import Updater

LR = 0.0625  # exact in float32, in which learning rates are computed


def optimizer(name: str, **config: Any) -> Optimizer:
    return parse_optimizer({"class_name": name, "config": {"learning_rate": LR, **config}})


def train(
    chosen: Optimizer, w: Array, gradients: list[Array], executor: Any = None
) -> tuple[Array, Updater]:
    layout = Layout([Variable("w", w.shape, str(w.dtype), True)])
    key = ArenaKey(True, str(w.dtype))
    updater = Updater(chosen, layout, executor)
    values = {key: w.copy()}
    for gradient in gradients:
        updater.apply(values, {key: gradient})
    return values[key], updater


# --- one step, computed by hand ------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "w", "g", "expected"),
    [
        (optimizer("SGD", learning_rate=0.5), 3.0, 2.0, 3 - 0.5 * 2),
        (optimizer("SGD", learning_rate=0.5, momentum=0.9), 3.0, 2.0, 3 - 0.5 * 2),
        (
            optimizer("SGD", learning_rate=0.5, momentum=0.5, nesterov=True),
            3.0,
            2.0,
            3 + 0.5 * -1 - 0.5 * 2,
        ),
        # The first step of Adam has the size of the learning rate.
        (optimizer("Adam", learning_rate=0.5, epsilon=0.0), 3.0, 2.0, 3 - 0.5),
        (optimizer("Adamax", learning_rate=0.5, epsilon=0.0), 3.0, 2.0, 3 - 0.5),
        (
            optimizer("Adagrad", learning_rate=0.5, initial_accumulator_value=0.0, epsilon=0.0),
            3.0,
            2.0,
            3 - 0.5,
        ),
        (
            optimizer("RMSprop", learning_rate=0.5, rho=0.75, epsilon=0.0),
            3.0,
            2.0,
            3 - 0.5 * 2 / math.sqrt(0.25 * 4),
        ),
        (optimizer("Lion", learning_rate=0.5), 3.0, -2.0, 3 + 0.5),
        (optimizer("Lion", learning_rate=0.5), 3.0, 0.0, 3.0),
        (optimizer("SGD", learning_rate=0.5, weight_decay=0.25), 4.0, 2.0, 4 - 4 * 0.125 - 1),
        (optimizer("SGD", learning_rate=0.5, clipvalue=0.5), 3.0, -2.0, 3 + 0.25),
        (optimizer("SGD", learning_rate=0.5, clipnorm=0.5), 3.0, -2.0, 3 + 0.25),
        (optimizer("SGD", learning_rate=0.5, global_clipnorm=4.0), 3.0, -2.0, 3 + 1),
    ],
)
def test_one_step_by_hand(chosen: Optimizer, w: float, g: float, expected: float) -> None:
    got, _ = train(chosen, np.array([w]), [np.array([g])])
    assert got[0] == pytest.approx(expected, rel=1e-12)


# --- many steps, by the formulas -----------------------------------------------------------

State = dict[str, Any]
Reference = Callable[[Array, Array, int, State], Any]


def sgd(w: Array, g: Array, t: int, s: State) -> Any:
    s["m"] = 0.8 * s.get("m", 0) - LR * g
    return w + 0.8 * s["m"] - LR * g


def adam(w: Array, g: Array, t: int, s: State) -> Any:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.99 * s.get("v", 0) + 0.01 * g**2
    s["max"] = np.maximum(s.get("max", 0), s["v"])
    # Keras corrects the bias of the rate, and so epsilon weighs more in the first steps.
    rate = LR * math.sqrt(1 - 0.99**t) / (1 - 0.9**t)
    return w - rate * s["m"] / (np.sqrt(s["max"]) + 1e-3)


def adagrad(w: Array, g: Array, t: int, s: State) -> Any:
    s["a"] = s.get("a", 0.1) + g**2
    return w - LR * g / np.sqrt(s["a"] + 1e-3)


def adadelta(w: Array, g: Array, t: int, s: State) -> Any:
    s["a"] = 0.9 * s.get("a", 0) + 0.1 * g**2
    step = -np.sqrt(s.get("d", 0) + 1e-3) / np.sqrt(s["a"] + 1e-3) * g
    s["d"] = 0.9 * s.get("d", 0) + 0.1 * step**2
    return w + LR * step


def rmsprop(w: Array, g: Array, t: int, s: State) -> Any:
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g**2
    s["c"] = 0.9 * s.get("c", 0) + 0.1 * g
    s["m"] = 0.5 * s.get("m", 0) + LR * g / np.sqrt(s["v"] - s["c"] ** 2 + 1e-3)
    return w - s["m"]


def adamax(w: Array, g: Array, t: int, s: State) -> Any:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["u"] = np.maximum(0.99 * s.get("u", 0), np.abs(g))
    return w - LR / (1 - 0.9**t) * s["m"] / (s["u"] + 1e-3)


def nadam(w: Array, g: Array, t: int, s: State) -> Any:
    u = [0.9 * (1 - 0.5 * 0.96**k) for k in range(1, t + 2)]
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.99 * s.get("v", 0) + 0.01 * g**2
    m_hat = u[t] * s["m"] / (1 - math.prod(u)) + (1 - u[t - 1]) * g / (1 - math.prod(u[:t]))
    return w - LR * m_hat / (np.sqrt(s["v"] / (1 - 0.99**t)) + 1e-3)


def ftrl(w: Array, g: Array, t: int, s: State) -> Any:
    n, p, l1, l2 = s.get("n", 0.1), 0.6, 0.01, 0.02 + 0.3 / (2 * LR)
    s["n"] = n + g**2
    s["z"] = s.get("z", 0) + g + 2 * 0.05 * w - (s["n"] ** p - n**p) / LR * w
    bound = np.where(np.abs(s["z"]) > l1, np.sign(s["z"]) * l1 - s["z"], 0)
    return bound / (s["n"] ** p / LR + 2 * l2)


def lion(w: Array, g: Array, t: int, s: State) -> Any:
    m = s.get("m", np.zeros_like(g))
    s["m"] = 0.99 * m + 0.01 * g
    return w - LR * np.sign(0.9 * m + 0.1 * g)


BETAS = {"beta_1": 0.9, "beta_2": 0.99}
FORMULAS: list[tuple[Reference, Optimizer]] = [
    (sgd, optimizer("SGD", momentum=0.8, nesterov=True)),
    (adam, optimizer("Adam", **BETAS, epsilon=1e-3, amsgrad=True)),
    (adagrad, optimizer("Adagrad", epsilon=1e-3)),
    (adadelta, optimizer("Adadelta", rho=0.9, epsilon=1e-3)),
    (rmsprop, optimizer("RMSprop", rho=0.9, momentum=0.5, epsilon=1e-3, centered=True)),
    (adamax, optimizer("Adamax", **BETAS, epsilon=1e-3)),
    (nadam, optimizer("Nadam", **BETAS, epsilon=1e-3)),
    (
        ftrl,
        optimizer(
            "Ftrl",
            learning_rate_power=-0.6,
            l1_regularization_strength=0.01,
            l2_regularization_strength=0.02,
            l2_shrinkage_regularization_strength=0.05,
            beta=0.3,
        ),
    ),
    (lion, optimizer("Lion", **BETAS)),
]


@pytest.mark.parametrize(("reference", "chosen"), FORMULAS, ids=[c.name for _, c in FORMULAS])
def test_an_optimizer_follows_its_formula(reference: Reference, chosen: Optimizer) -> None:
    rng = np.random.default_rng(3)
    w = rng.normal(size=40)
    gradients = [rng.normal(size=40) for _ in range(60)]
    got, _ = train(chosen, w, gradients)
    state: State = {}
    expected = w
    for t, gradient in enumerate(gradients, start=1):
        expected = reference(expected, gradient, t, state)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_clipping_by_norm_takes_each_variable_alone_and_global_all_together() -> None:
    layout = Layout([Variable("a", (2,), "float64", True), Variable("b", (1,), "float64", True)])
    key = ArenaKey(True, "float64")
    gradient = np.array([3.0, 4.0, 0.5])
    moved = {}
    for option in ("clipnorm", "global_clipnorm"):
        values = {key: np.zeros(3)}
        chosen = optimizer("SGD", **{"learning_rate": 1.0, option: 1.0})
        Updater(chosen, layout, None).apply(values, {key: gradient})
        moved[option] = -values[key]
    np.testing.assert_allclose(moved["clipnorm"], [0.6, 0.8, 0.5])
    np.testing.assert_allclose(moved["global_clipnorm"], gradient / math.sqrt(25.25))


def test_weight_decay_leaves_excluded_variables_alone() -> None:
    layout = Layout([Variable(name, (1,), "float64", True) for name in ("kernel", "bias", "gain")])
    key = ArenaKey(True, "float64")
    chosen = parse_optimizer(
        {
            "class_name": "AdamW",
            "config": {"learning_rate": 0.5, "weight_decay": 0.25},
            EXCLUDED_FROM_DECAY: ["bias"],
        }
    )
    values = {key: np.full(3, 8.0)}
    Updater(chosen, layout, None).apply(values, {key: np.zeros(3)})
    assert values[key].tolist() == [7.0, 8.0, 7.0]


def test_a_schedule_counts_the_updates() -> None:
    rate = {
        "class_name": "PiecewiseConstantDecay",
        "config": {"boundaries": [0, 2], "values": [1.0, 0.5, 0.25], "name": "steps"},
    }
    chosen = optimizer("SGD", learning_rate=rate)
    w, _ = train(chosen, np.zeros(1), [np.array([-1.0])] * 5)
    assert w[0] == 1.0 + 0.5 + 0.5 + 0.25 + 0.25


# --- state ---------------------------------------------------------------------------------


def test_slots_are_named_arrays_and_unused_ones_take_no_memory() -> None:
    w = np.ones(5, np.float32)
    for chosen, names in (
        (optimizer("SGD"), set()),
        (optimizer("SGD", momentum=0.9), {"momentum"}),
        (optimizer("Adam"), {"momentum", "velocity"}),
        (optimizer("Adam", amsgrad=True), {"momentum", "velocity", "velocity_hat"}),
        (optimizer("RMSprop", centered=True), {"velocity", "average_gradient"}),
        (optimizer("Lion", use_ema=True), {"momentum", "average"}),
    ):
        _, updater = train(chosen, w, [w])
        assert set(updater.slots) == names
        assert all(a.shape == (5,) for slot in updater.slots.values() for a in slot.values())


@pytest.mark.parametrize("chosen", [c for _, c in FORMULAS], ids=[c.name for _, c in FORMULAS])
def test_slices_on_threads_give_the_same_bits_as_one_thread(
    chosen: Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arithmetic.slices, "__defaults__", (64,))
    rng = np.random.default_rng(4)
    w = rng.normal(size=1000).astype(np.float32)
    gradients = [rng.normal(size=1000).astype(np.float32) for _ in range(5)]
    with ThreadPoolExecutor(2) as pool:
        parallel, _ = train(chosen, w, gradients, pool)
    inline, _ = train(chosen, w, gradients)
    monkeypatch.undo()
    whole, _ = train(chosen, w, gradients)
    np.testing.assert_array_equal(parallel, inline)
    np.testing.assert_array_equal(parallel, whole)


def test_the_caller_s_gradient_is_not_changed_and_may_be_read_only() -> None:
    gradient = np.array([1.0, -8.0], np.float32)
    before = gradient.copy()
    train(optimizer("Adam", clipvalue=0.5), np.ones(2, np.float32), [gradient, gradient])
    np.testing.assert_array_equal(gradient, before)
    assert gradient.flags.writeable


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1023])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_single_infinity_or_nan_is_found_anywhere(size: int, dtype: str) -> None:
    clean = np.full(size, np.finfo(dtype).max, dtype)
    clean[::2] *= -1
    assert arithmetic.all_finite([clean], None)
    for at in range(size):
        for bad in (np.nan, -np.nan, np.inf, -np.inf):
            broken = clean.copy()
            broken[at] = bad
            assert not arithmetic.all_finite([clean, broken], None)


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("serialized", "says"),
    [
        ({"class_name": "Zigzag", "config": {}}, "class = Zigzag is not supported: use one of SGD"),
        (
            {"class_name": "LossScaleOptimizer", "config": {}},
            "LossScaleOptimizer.*give its inner optimizer",
        ),
        (
            {"class_name": "SGD", "config": {"gradient_accumulation_steps": 4}},
            "SGD.gradient_accumulation_steps = 4.*--grads-to-wait",
        ),
        (
            {"class_name": "Adam", "config": {"loss_scale_factor": 8.0}},
            "Adam.loss_scale_factor = 8.0.*mixed_bfloat16",
        ),
        ({"class_name": "SGD", "config": {"swing": 0.5}}, r"SGD.swing = 0.5.*momentum, nesterov"),
        ({"class_name": "Adam", "config": {"clipnorm": 1.0, "clipvalue": 1.0}}, "only one"),
        (
            {"class_name": "SGD", "config": {}, "registered_name": "mine>SGD"},
            "mine>SGD, a class of your own",
        ),
        ({"class_name": "SGD", "config": {}, "module": "my.zoo"}, "my.zoo.SGD"),
        ({"config": {}}, "optimizer = "),
        ({"class_name": "SGD", "config": {"learning_rate": "fast"}}, "learning_rate = 'fast'"),
        (
            {
                "class_name": "SGD",
                "config": {"learning_rate": {"class_name": "Zigzag", "config": {}}},
            },
            "learning_rate = Zigzag.*ExponentialDecay",
        ),
        (
            {
                "class_name": "SGD",
                "config": {
                    "learning_rate": {
                        "class_name": "ExponentialDecay",
                        "config": {"initial_learning_rate": 0.1, "decay_steps": 10},
                    }
                },
            },
            "ExponentialDecay.decay_rate",
        ),
        (
            {
                "class_name": "SGD",
                "config": {
                    "learning_rate": {
                        "class_name": "CosineDecay",
                        "module": "my.zoo",
                        "config": {"initial_learning_rate": 0.1, "decay_steps": 10},
                    }
                },
            },
            "my.zoo.CosineDecay",
        ),
    ],
)
def test_what_is_not_supported_is_refused_with_option_and_remedy(
    serialized: dict[str, Any], says: str
) -> None:
    with pytest.raises(OptimizerUnsupported, match=says) as refused:
        parse_optimizer(serialized)
    assert refused.value.remedy


def test_an_unknown_option_that_is_off_asks_for_nothing() -> None:
    parse_optimizer({"class_name": "SGD", "config": {"name": "x", "swing": None, "jump": False}})


def test_weight_decay_cannot_exclude_a_variable_that_does_not_exist() -> None:
    chosen = parse_optimizer(
        {"class_name": "AdamW", "config": {}, EXCLUDED_FROM_DECAY: ["bias", "dense/bais"]}
    )
    with pytest.raises(ValueError, match="not a variable: dense/bais"):
        check_fit(chosen, Layout([Variable("bias", (1,), "float32", True)]), Async())
