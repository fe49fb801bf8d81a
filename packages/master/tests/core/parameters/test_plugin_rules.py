"""Rules that another package adds, through the classes that it derives them from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import ArenaKey, Array, Layout, Variable
from edl_master.core.parameters.model_check import check_fit
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables.joint_tables import JointTables
from edl_master.core.parameters.tables.table import Table
from edl_master.core.parameters.update_rules import (
    ElementwiseRule,
    RuleFailed,
    Slot,
    Step,
    WholeVariableRule,
)
from edl_master.core.parameters.updater import Updater

KEY = ArenaKey(True, "float32")
TABLE = TableSpec("rows", 2, Initial(Distribution.UNIFORM, 0.0, 0.0), 1)


@dataclass(frozen=True)
class Count(ElementwiseRule):
    """Subtract the gradient times the number of the update, which is in a slot."""

    first: float = 1.0

    def slots(self) -> tuple[Slot, ...]:
        return Slot("unused", used=False), Slot("number", initial=self.first)

    def update(self, value: Array, gradient: Array, slots: Mapping[str, Array], step: Step) -> None:
        (number,) = slots.values()
        value -= step.learning_rate * gradient * number
        number += 1


@dataclass(frozen=True)
class Total(WholeVariableRule):
    """Subtract the sum of the gradient over each variable, if it is not negative."""

    def update(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        assert value.shape == gradient.shape == variable.shape
        if gradient.sum() < 0:
            raise ArithmeticError(f"negative: {variable.name}")
        value -= gradient.sum()


RULES: dict[str, type[Any]] = {"Count": Count, "Total": Total}


def optimizer(name: str, **config: Any) -> Optimizer:
    serialized = {"class_name": name, "registered_name": f"mine>{name}", "module": "zoo"}
    return parse_optimizer({**serialized, "config": {"learning_rate": 1.0, **config}}, RULES.get)


def test_an_elementwise_rule_gets_clipped_gradients_of_decayed_values() -> None:
    layout = Layout([Variable("w", (2,), "float32", True)])
    chosen = optimizer("Count", first=2.0, clipvalue=1.0, weight_decay=0.5)
    updater = Updater(chosen, layout, None)
    values = {KEY: np.float32([4, 8])}
    gradient = {KEY: np.float32([3, -0.5])}
    updater.apply(values, gradient)
    assert values[KEY].tolist() == [2 - 2 * 1, 4 + 2 * 0.5]
    updater.apply(values, gradient)
    assert values[KEY].tolist() == [0 - 3 * 1, 2.5 + 3 * 0.5]
    assert gradient[KEY].tolist() == [3, -0.5]
    assert updater.slots["number"][KEY].tolist() == [4, 4]


def test_an_elementwise_rule_updates_rows_of_tables() -> None:
    chosen = optimizer("Count")
    check_fit(chosen, Layout([], [TABLE]), Async())
    updater = Updater(chosen, Layout([], [TABLE]), None)
    table = Table(TABLE, chosen.row_slots)
    joint, ids, bounds = JointTables([table]), np.int64([7]), np.array([0, 1])
    for _ in range(2):
        updater.apply({}, {}, rows=[joint.resolve(ids, bounds, np.float32([[1, 2]]))])
    rows = np.empty((1, 2), np.float32)
    joint.read(ids, bounds, rows, [table.take_view()])
    assert rows.tolist() == [[-3, -6]]


def test_a_rule_of_whole_variables_is_refused_for_rows_of_tables() -> None:
    with pytest.raises(OptimizerUnsupported, match="Total, which needs whole variables, with"):
        check_fit(optimizer("Total"), Layout([], [TABLE]), Async())


def test_a_rule_of_whole_variables_sees_each_variable_alone() -> None:
    layout = Layout([Variable("a", (2, 2), "float32", True), Variable("b", (), "float32", True)])
    values = {KEY: np.zeros(5, np.float32)}
    updater = Updater(optimizer("Total"), layout, None)
    updater.apply(values, {KEY: np.float32([1, 2, 3, 4, 5])})
    assert values[KEY].tolist() == [-10, -10, -10, -10, -5]
    with pytest.raises(RuleFailed, match=r"test_plugin_rules\.Total fails: .*negative: b"):
        updater.apply(values, {KEY: np.float32([1, 2, 3, 4, -5])})


def test_a_broken_rule_is_refused_by_name_before_any_update() -> None:
    class Broken(Count):
        def update(self, *arguments: Any) -> None:
            raise TypeError("no such thing")

    serialized = {"class_name": "Mine", "module": "zoo", "config": {"learning_rate": 1.0}}
    chosen = parse_optimizer(serialized, {"Mine": Broken}.get)
    layout = Layout([Variable("w", (3,), "float64", True)])
    with pytest.raises(OptimizerUnsupported, match=r"Mine .*Broken fails: TypeError: no such"):
        check_fit(chosen, layout, Async())


def test_options_that_the_rule_does_not_have_are_refused() -> None:
    with pytest.raises(OptimizerUnsupported, match=r"Count\.swing = 3 .*Count takes first"):
        optimizer("Count", swing=3)


def test_a_class_of_keras_keeps_its_rule_whatever_is_installed() -> None:
    config = {"class_name": "SGD", "module": "keras.optimizers", "config": {}}
    assert parse_optimizer(config, lambda _: Count) == parse_optimizer(config)
    own = parse_optimizer({**config, "registered_name": "mine>SGD"}, lambda _: Count)
    assert own.rule == Count()
