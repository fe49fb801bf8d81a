"""Update rules of two optimizers; `keras_optimizers.py` has the same as Keras classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edl_master.core.parameters.layout import Array, Variable
from edl_master.core.parameters.update_rules import (
    ElementwiseRule,
    Slot,
    Step,
    WholeVariableRule,
)


@dataclass(frozen=True)
class SignMomentum(ElementwiseRule):
    """``m = momentum m + (1 - momentum) g; w -= lr sign(m)``."""

    momentum: float = 0.9

    def slots(self) -> tuple[Slot, ...]:
        return (Slot("momentum"),)

    def update(self, value: Array, gradient: Array, slots: Mapping[str, Array], step: Step) -> None:
        real = value.dtype.type
        momentum = slots["momentum"]
        momentum += (gradient - momentum) * real(1 - self.momentum)
        value -= step.learning_rate * np.sign(momentum)


@dataclass(frozen=True)
class RowScaled(WholeVariableRule):
    """``r = rho r + (1 - rho) mean(g²)`` of each row; ``w -= lr |w| g / (sqrt(r) + epsilon)``."""

    rho: float = 0.9
    epsilon: float = 1e-6

    def slots(self, variable: Variable) -> tuple[Slot, ...]:
        return (Slot("row", initial=0.5, shape=variable.shape[:-1]),)

    def update(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        real = value.dtype.type
        row = slots["row"]
        row += (np.mean(gradient * gradient, axis=-1) - row) * real(1 - self.rho)
        scaled = gradient / (np.sqrt(row) + real(self.epsilon))[..., None]
        value -= step.learning_rate * np.sqrt(np.sum(value * value)) * scaled
