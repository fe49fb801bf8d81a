"""Several optimizers in one model: each variable moves as if its optimizer were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edl_master.core.parameters.layout import ArenaKey, Array, Layout, Variable
from edl_master.core.parameters.model_check import check_fit
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.snapshot import SnapshotError
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.updater import Updater

from .planes import sgd

SIZES = {"g/kernel": 6, "d/kernel": 4, "d/bias": 2, "g/bias": 3, "rest": 1}
LAYOUT = Layout(Variable(name, (size,), "float32", True) for name, size in SIZES.items())
KEY = ArenaKey(True, "float32")


def describe(name: str, variables: list[str] | None = None, **more: Any) -> dict[str, Any]:
    excluded = more.pop("excluded", [])
    found = {"class_name": name, "config": more, "excluded_from_weight_decay": excluded}
    return found if variables is None else {**found, "variables": variables}


def several(first: dict[str, Any], *others: dict[str, Any]) -> Optimizer:
    return parse_optimizer({**first, "others": list(others)})


FIRST = describe("Adam", learning_rate=0.1, use_ema=True, ema_momentum=0.5)
OTHERS = {
    "momentum": describe("SGD", ["d/kernel", "d/bias"], learning_rate=0.3, momentum=0.9),
    "same slots": describe("Ftrl", ["d/kernel", "d/bias"], initial_accumulator_value=0.7),
    "memory": describe("Nadam", ["d/bias", "d/kernel"], learning_rate=0.03),
    "clipped": describe("Adam", ["d/kernel", "d/bias"], learning_rate=0.2, clipnorm=0.3),
    "clipped together": describe("SGD", ["d/kernel", "d/bias"], global_clipnorm=0.3),
    "decayed": describe("AdamW", ["d/kernel", "d/bias"], excluded=["d/bias"], weight_decay=0.5),
}


def alone(one: Optimizer, names: list[str], values: Array, gradients: list[Array]) -> Array:
    """Return what an optimizer makes of some variables when there are no others."""
    ends = dict(zip(SIZES, np.cumsum(list(SIZES.values())), strict=True))
    picked = np.concatenate([np.arange(ends[n] - SIZES[n], ends[n]) for n in names])
    layout = Layout(Variable(name, (SIZES[name],), "float32", True) for name in names)
    updater = Updater(one, layout, None)
    own = {KEY: values[picked].copy()}
    for gradient in gradients:
        updater.apply(own, {KEY: gradient[picked]}, 0.5)
    updater.finish(own)
    result = values.copy()
    result[picked] = own[KEY]
    return result


@pytest.mark.parametrize("kind", OTHERS)
def test_each_optimizer_updates_its_variables_though_training_is_interrupted(kind: str) -> None:
    chosen = several(FIRST, OTHERS[kind], describe("Adagrad", ["rest"], learning_rate=0.5))
    random = np.random.default_rng(3)
    values = random.normal(size=16).astype(np.float32)
    gradients = [random.normal(size=16).astype(np.float32) for _ in range(6)]
    store = ParameterStore(LAYOUT, chosen, Async())
    store.initialize(values.tobytes())
    for number, gradient in enumerate(gradients):
        if number == 3:
            store = ParameterStore.restore(store.snapshot(), chosen, Async(), layout=LAYOUT)
        store._update({KEY: gradient}, None, 0.5)
    store.finish()
    found = np.empty(16, np.float32)
    store.read_parameters(memoryview(found).cast("B"))

    first, other, last = chosen.each
    wanted = alone(first, ["g/kernel", "g/bias"], values, gradients)
    wanted = alone(other, ["d/kernel", "d/bias"], wanted, gradients)
    wanted = alone(last, ["rest"], wanted, gradients)
    np.testing.assert_allclose(found, wanted, 1e-6)
    assert np.abs(found - values).min() > 1e-4, "some variable has not been trained"
    assert store.version == 7


def test_a_set_learning_rate_is_that_of_the_first() -> None:
    chosen = several(describe("SGD", learning_rate=1.0), describe("SGD", ["rest"]))
    store = ParameterStore(LAYOUT, chosen, Async())
    store.initialize(bytes(64))
    store.set_learning_rate(2.0)
    store._update({KEY: np.full(16, -1, np.float32)}, None)
    found = np.empty(16, np.float32)
    store.read_parameters(memoryview(found).cast("B"))
    np.testing.assert_allclose(found, [2.0] * 15 + [0.01])


def test_another_optimizer_cannot_go_on() -> None:
    chosen = several(FIRST, OTHERS["momentum"])
    store = ParameterStore(LAYOUT, chosen, Async())
    store.initialize(bytes(64))
    for other in (parse_optimizer(FIRST), several(FIRST, OTHERS["memory"])):
        with pytest.raises(SnapshotError, match="trained with Adam, SGD, whose state Adam"):
            ParameterStore.restore(store.snapshot(), other, Async())


TABLE = TableSpec("rows", 3, Initial(Distribution.NORMAL, 0.0, 1.0), 7)


@pytest.mark.parametrize(
    ("chosen", "tables", "message"),
    [
        (several(FIRST, describe("SGD", ["e"])), (), "not variables: e"),
        (
            several(FIRST, describe("SGD", ["rest"]), describe("Adam", ["rest"])),
            (),
            "several optimizers: rest",
        ),
        (several(FIRST, describe("SGD", ["rest"], excluded=["x"])), (), "not a variable: x"),
        (several(describe("SGD"), describe("SGD", ["rest"])), (TABLE,), "embedding tables"),
    ],
)
def test_what_does_not_fit_is_refused(
    chosen: Optimizer, tables: tuple[TableSpec, ...], message: str
) -> None:
    layout = Layout(LAYOUT.variables, tables)
    check_fit(sgd(), layout, Async())
    with pytest.raises(ValueError, match=message):
        check_fit(chosen, layout, Async())
