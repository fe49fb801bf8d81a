"""Every optimizer and option gives the weights that Keras gives, step after step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.model_check import check_fit
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import (
    EXCLUDED_FROM_DECAY,
    RULES,
    parse_optimizer,
)
from edl_master.core.parameters.schedules import find_schedules
from edl_master.core.parameters.updater import Updater
from edl_master.core.parameters.values import Values

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf: Any = pytest.importorskip(
    "tensorflow", reason="compares with the real Keras", exc_type=ImportError
)
keras: Any = pytest.importorskip("keras", exc_type=ImportError)

STEPS = 80
SHAPES = {
    "dense/kernel": (6, 7),
    "dense/bias": (7,),
    "out/kernel": (7, 3),
    "embedding/table": (5, 4),
    "convolution/kernel": (2, 3, 4),
    "gain": (),
}
SOME = ("dense/kernel", "convolution/kernel", "gain")
"""Those with which options are tried: tracing, which is most of a test, takes half the time."""

opt = keras.optimizers
sched = keras.optimizers.schedules

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: opt.SGD(0.05),
    "sgd momentum": lambda: opt.SGD(0.02, momentum=0.9),
    "sgd nesterov": lambda: opt.SGD(0.02, momentum=0.9, nesterov=True),
    "sgd nesterov without momentum": lambda: opt.SGD(0.02, nesterov=True),
    "adam": lambda: opt.Adam(0.01),
    "adam amsgrad": lambda: opt.Adam(0.01, amsgrad=True, beta_1=0.8, beta_2=0.95, epsilon=1e-4),
    "adamw": lambda: opt.AdamW(0.01, weight_decay=0.1),
    "adamw default": opt.AdamW,
    "adagrad": lambda: opt.Adagrad(0.05, initial_accumulator_value=0.3, epsilon=1e-5),
    "adadelta": lambda: opt.Adadelta(1.0, rho=0.9, epsilon=1e-6),
    "rmsprop": lambda: opt.RMSprop(0.01),
    "rmsprop momentum": lambda: opt.RMSprop(0.01, rho=0.8, momentum=0.7),
    "rmsprop centered": lambda: opt.RMSprop(0.01, centered=True),
    "rmsprop centered momentum": lambda: opt.RMSprop(0.01, centered=True, momentum=0.5),
    "adamax": lambda: opt.Adamax(0.01, beta_1=0.85, beta_2=0.99),
    "nadam": lambda: opt.Nadam(0.01),
    "nadam betas": lambda: opt.Nadam(0.01, beta_1=0.8, beta_2=0.98, epsilon=1e-5),
    "ftrl": lambda: opt.Ftrl(0.05),
    "ftrl regularized": lambda: opt.Ftrl(
        0.05,
        learning_rate_power=-0.7,
        initial_accumulator_value=0.2,
        l1_regularization_strength=0.02,
        l2_regularization_strength=0.03,
        l2_shrinkage_regularization_strength=0.01,
        beta=0.4,
    ),
    "lion": lambda: opt.Lion(0.003, beta_1=0.8, beta_2=0.95),
    "adafactor": lambda: opt.Adafactor(0.02),
    "adafactor options": lambda: opt.Adafactor(
        0.5,
        beta_2_decay=-0.6,
        epsilon_1=1e-8,
        epsilon_2=0.01,
        clip_threshold=0.5,
        relative_step=False,
    ),
    "lamb": lambda: opt.Lamb(0.01),
    "lamb betas": lambda: opt.Lamb(0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-4),
    "muon": lambda: opt.Muon(0.01),
    "muon options": lambda: opt.Muon(
        0.01,
        adam_beta_1=0.8,
        adam_beta_2=0.95,
        adam_weight_decay=0.1,
        epsilon=1e-5,
        weight_decay=0.05,
        exclude_layers=["^out"],
        muon_a=3.0,
        muon_b=-4.0,
        muon_c=1.8,
        adam_lr_ratio=0.5,
        momentum=0.8,
        ns_steps=3,
        nesterov=False,
        rms_rate=None,
    ),
    "muon with embeddings": lambda: opt.Muon(
        0.01, exclude_embeddings=False, adam_weight_decay=None
    ),
    "schedule free": lambda: opt.ScheduleFreeAdamW(0.01),
    "schedule free warmup": lambda: opt.ScheduleFreeAdamW(
        0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-5, warmup_steps=70, weight_decay=0.1
    ),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "clipnorm and weight decay": {"clipnorm": 0.7, "weight_decay": 0.05},
    "global clipnorm and average": {
        "global_clipnorm": 0.9,
        "use_ema": True,
        "ema_momentum": 0.9,
    },
    "clipvalue, schedule and average that overwrites": {
        "clipvalue": 0.4,
        "learning_rate": sched.ExponentialDecay(0.02, 20, 0.8),
        "use_ema": True,
        "ema_momentum": 0.95,
        "ema_overwrite_frequency": 7,
    },
}
"""Together they have each option; tracing is most of a test, so each has several."""

KINDS = sorted(RULES)


def a_variable(path: str, value: Any) -> Any:
    """A variable with this path: Muon looks at it."""
    scope, _, name = path.rpartition("/")
    with keras.name_scope(scope) if scope else contextlib.nullcontext():
        variable = keras.Variable(value, dtype=str(value.dtype), name=name)
    assert variable.path == path
    return variable


class Both:
    """Two copies of variables: one under Keras, and one under an updater."""

    def __init__(
        self,
        optimizer: Any,
        dtype: str = "float32",
        undecayed: tuple[str, ...] = (),
        names: Sequence[str] = tuple(SHAPES),
    ):
        rng = np.random.default_rng(1)
        layout = Layout(Variable(name, SHAPES[name], dtype, True) for name in names)
        initial = [rng.normal(size=SHAPES[name]).astype(dtype) for name in names]
        self.variables = [
            a_variable(name, value) for name, value in zip(names, initial, strict=True)
        ]
        config = opt.serialize(optimizer)
        if undecayed:
            config[EXCLUDED_FROM_DECAY] = list(undecayed)
            optimizer.exclude_from_weight_decay(
                var_list=[v for v, n in zip(self.variables, names, strict=True) if n in undecayed]
            )
        self.keras = optimizer
        self.values = Values(layout, None)
        self.values.load(np.concatenate([v.ravel() for v in initial]))
        self.updater = Updater(parse_optimizer(config), layout, None)

    def train(self, steps: int) -> None:
        self.keras.build(self.variables)
        apply = tf.function(lambda gradients: self.keras.apply(gradients, self.variables))
        rng = np.random.default_rng(2)
        for step in range(steps):
            # Some steps with small gradients, so that clipping does not always bite.
            size = 0.05 if step % 5 == 0 else 1.0
            gradients = [
                (rng.normal(size=v.shape) * size).astype(self.variables[0].dtype)
                for v in self.variables
            ]
            apply([tf.constant(g) for g in gradients])
            flat = np.concatenate([g.ravel() for g in gradients])
            self.updater.apply(self.values.trainable, self.values.gradient(flat))

    def expect_equal(self) -> None:
        mine = np.empty(self.values.layout.parameter_nbytes, np.uint8)
        self.values.store(self.values.arenas, mine)
        dtype = self.variables[0].dtype
        theirs = np.concatenate([np.asarray(v.numpy()).ravel() for v in self.variables])
        tolerance = 2e-5 if dtype == "float32" else 1e-6
        np.testing.assert_allclose(mine.view(dtype), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_equals_keras_over_many_steps(name: str) -> None:
    both = Both(OPTIMIZERS[name]())
    both.train(STEPS)
    both.expect_equal()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_every_optimizer_equals_keras(kind: str, option: str) -> None:
    settings = {"learning_rate": 0.01, **OPTIONS[option]}
    if kind == "ScheduleFreeAdamW" and "ema_overwrite_frequency" in settings:
        chosen = parse_optimizer(opt.serialize(getattr(opt, kind)(**settings)))
        with pytest.raises(ValueError, match=r"ScheduleFreeAdamW\.ema_overwrite_frequency = 7"):
            check_fit(chosen, Layout([]), Async())
        del settings["ema_overwrite_frequency"]
    both = Both(getattr(opt, kind)(**settings), names=SOME)
    both.train(STEPS)
    both.expect_equal()


# Muon of Keras itself mixes dtypes where rms_rate is set.
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - {"muon", "muon with embeddings"}))
def test_double_precision_equals_keras(name: str) -> None:
    both = Both(OPTIMIZERS[name](), dtype="float64", names=SOME)
    both.train(30)
    both.expect_equal()


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_variables_excluded_from_weight_decay_do_not_decay(kind: str) -> None:
    both = Both(getattr(opt, kind)(0.01, weight_decay=0.2), undecayed=("dense/bias", "gain"))
    both.train(STEPS)
    both.expect_equal()


def test_at_the_end_of_training_the_average_replaces_the_values() -> None:
    both = Both(opt.Adam(0.01, use_ema=True, ema_momentum=0.9))
    both.train(20)
    both.keras.finalize_variable_values(both.variables)
    assert both.updater.finish(both.values.trainable)
    both.expect_equal()


SCHEDULES: dict[str, Callable[[], Any]] = {
    "exponential": lambda: sched.ExponentialDecay(0.1, 30, 0.7),
    "exponential staircase": lambda: sched.ExponentialDecay(0.1, 30, 0.7, staircase=True),
    "piecewise": lambda: sched.PiecewiseConstantDecay([10, 50, 51], [0.3, 0.2, 0.1, 0.05]),
    "piecewise one boundary": lambda: sched.PiecewiseConstantDecay([10], [0.3, 0.2]),
    "polynomial": lambda: sched.PolynomialDecay(0.1, 90, 0.01, power=1.5),
    "polynomial cycle": lambda: sched.PolynomialDecay(0.1, 40, 0.01, power=0.5, cycle=True),
    "inverse time": lambda: sched.InverseTimeDecay(0.1, 20, 0.5),
    "inverse time staircase": lambda: sched.InverseTimeDecay(0.1, 20, 0.5, staircase=True),
    "cosine": lambda: sched.CosineDecay(0.1, 150, alpha=0.1),
    "cosine warmup": lambda: sched.CosineDecay(
        0.01, 100, alpha=0.1, warmup_target=0.2, warmup_steps=25
    ),
    "cosine restarts": lambda: sched.CosineDecayRestarts(0.1, 17, t_mul=2.0, m_mul=0.9, alpha=0.05),
    "cosine restarts, equal periods": lambda: sched.CosineDecayRestarts(0.1, 25, t_mul=1.0),
    "cosine restarts, odd factor": lambda: sched.CosineDecayRestarts(0.1, 13, t_mul=1.5),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_the_rate_of_keras_at_every_step(name: str) -> None:
    schedule = SCHEDULES[name]()
    mine = parse_optimizer(opt.serialize(opt.SGD(schedule))).learning_rate
    traced = tf.function(schedule, input_signature=[tf.TensorSpec((), tf.int64)])
    theirs = [float(traced(np.int64(step))) for step in range(400)]
    np.testing.assert_allclose([mine(step) for step in range(400)], theirs, rtol=3e-5, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_are_those_of_keras(kind: str) -> None:
    """A bare class name means what the class means without arguments."""
    full = parse_optimizer(opt.serialize(getattr(opt, kind)()))
    bare = parse_optimizer({"class_name": kind, "config": {}})
    assert bare.rule == full.rule
    assert bare.learning_rate(0) == full.learning_rate(0)
    assert (bare.weight_decay, bare.clipping, bare.ema) == (full.weight_decay, full.clipping, None)


UNSUPPORTED = {
    "LossScaleOptimizer": lambda: opt.LossScaleOptimizer(opt.SGD()),
    "MultiOptimizer": lambda: opt.MultiOptimizer(opt.OptimizerMap(opt.SGD())),
}
NO_OPTIMIZERS = {"Optimizer", "OptimizerMap"}


def test_every_optimizer_of_keras_is_supported_or_refused_with_a_remedy() -> None:
    """A new version of Keras may bring another one."""
    classes = {name for name, each in vars(opt).items() if isinstance(each, type)}
    assert classes - NO_OPTIMIZERS == RULES.keys() | UNSUPPORTED.keys()
    for name, make in UNSUPPORTED.items():
        with pytest.raises(ValueError, match=name) as refused:
            parse_optimizer(opt.serialize(make()))
        assert getattr(refused.value, "remedy", "")


def test_a_subclass_with_a_known_name_is_refused() -> None:
    class SGD(opt.SGD):
        pass

    with pytest.raises(ValueError, match="class of your own"):
        parse_optimizer(opt.serialize(SGD()))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "Muon", "ScheduleFreeAdamW"])
def test_a_schedule_is_found_in_what_keras_serializes(kind: str) -> None:
    """The plane has no rule for some of these optimizers: workers apply them."""
    make = getattr(opt, kind)
    falling = opt.schedules.ExponentialDecay(0.1, 10, 0.5)
    constant, scheduled = (opt.serialize(make(learning_rate=rate)) for rate in (0.1, falling))
    assert find_schedules(constant) == (None,)
    assert find_schedules(scheduled) == ("ExponentialDecay",)
    scaled = opt.serialize(opt.LossScaleOptimizer(make(learning_rate=falling)))
    assert find_schedules(scaled) == ("ExponentialDecay",)
    several = {**constant, "others": [{**scheduled, "variables": ["v"]}]}
    assert find_schedules(several) == (None, "ExponentialDecay")
