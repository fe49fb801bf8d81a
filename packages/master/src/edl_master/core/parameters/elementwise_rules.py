"""Rules that a kernel applies element by element, with the names and defaults of Keras 3.

In the formulas ``w`` is the value, ``g`` its gradient, ``lr`` the learning rate and ``t`` the
number of the step, from 1. A rule is immutable; what it remembers is in slots (arrays shaped like
the values) and, for Nadam, one number in ``memory``.

Numbers are computed in the dtype of the arena, in the order in which Keras computes them:
``1 - 0.999`` differs by 1e-5 (relatively) between float32 and float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edl_master.core.parameters.update_rules import Factors, Memory, Slot, SlotRule


@dataclass(frozen=True, slots=True)
class SGD(SlotRule):
    """Gradient descent.

    ``w -= lr g``; with momentum ``m = momentum m - lr g; w += m``; with nesterov
    ``w += momentum m - lr g`` instead, with the new ``m``.
    """

    momentum: float = 0.0
    nesterov: bool = False
    kernel: ClassVar[str] = "sgd"

    def slots(self) -> tuple[Slot, ...]:
        return (Slot("momentum", used=self.momentum != 0),)

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        return lr, type(lr)(self.momentum), self.momentum != 0, self.nesterov


@dataclass(frozen=True, slots=True)
class Adam(SlotRule):
    """Adam, and AMSGrad.

    ``m += (g - m)(1 - beta_1); v += (g² - v)(1 - beta_2)``, then
    ``w -= m lr sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)``.

    With amsgrad the largest ``v`` so far takes the place of ``v`` in the last line. AdamW is
    Adam with ``weight_decay``, which is applied outside of the rule.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    amsgrad: bool = False
    kernel: ClassVar[str] = "adam"

    def slots(self) -> tuple[Slot, ...]:
        return Slot("momentum"), Slot("velocity"), Slot("velocity_hat", used=self.amsgrad)

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        t = real(step)
        power_1, power_2 = real(self.beta_1) ** t, real(self.beta_2) ** t
        alpha = lr * np.sqrt(1 - power_2) / (1 - power_1)
        return (
            alpha,
            real(1 - self.beta_1),
            real(1 - self.beta_2),
            real(self.epsilon),
            self.amsgrad,
        )


@dataclass(frozen=True, slots=True)
class Adagrad(SlotRule):
    """``a += g²; w -= lr g / sqrt(a + epsilon)``; ``a`` begins at its initial value."""

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7
    kernel: ClassVar[str] = "adagrad"

    def slots(self) -> tuple[Slot, ...]:
        return (Slot("accumulator", self.initial_accumulator_value),)

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        return lr, type(lr)(self.epsilon)


@dataclass(frozen=True, slots=True)
class Adadelta(SlotRule):
    """Adadelta.

    ``a = rho a + (1 - rho) g²``; ``s = -g sqrt(d + epsilon) / sqrt(a + epsilon)`` with the
    old ``d``; ``d = rho d + (1 - rho) s²; w += lr s``.
    """

    rho: float = 0.95
    epsilon: float = 1e-7
    kernel: ClassVar[str] = "adadelta"

    def slots(self) -> tuple[Slot, ...]:
        return Slot("accumulated_grad"), Slot("accumulated_delta_var")

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        return lr, real(self.rho), real(1 - self.rho), real(self.epsilon)


@dataclass(frozen=True, slots=True)
class RMSprop(SlotRule):
    """``v = rho v + (1 - rho) g²; s = lr g / sqrt(v + epsilon); w -= s``.

    With centered, ``c = rho c + (1 - rho) g`` and ``v - c²`` takes the place of ``v`` under the
    root. With momentum, ``m = momentum m + s; w -= m``.
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False
    kernel: ClassVar[str] = "rmsprop"

    def slots(self) -> tuple[Slot, ...]:
        return (
            Slot("velocity"),
            Slot("momentum", used=self.momentum > 0),
            Slot("average_gradient", used=self.centered),
        )

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        return (
            lr,
            real(self.rho),
            real(1 - self.rho),
            real(self.epsilon),
            real(self.momentum),
            self.momentum > 0,
            self.centered,
        )


@dataclass(frozen=True, slots=True)
class Adamax(SlotRule):
    """Adam with the infinity norm.

    ``m += (g - m)(1 - beta_1); u = max(beta_2 u, |g|)``, then
    ``w -= lr m / ((1 - beta_1^t)(u + epsilon))``.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    kernel: ClassVar[str] = "adamax"

    def slots(self) -> tuple[Slot, ...]:
        return Slot("momentum"), Slot("norm")

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        correction = 1 - real(self.beta_1) ** real(step)
        return lr, real(1 - self.beta_1), real(self.beta_2), correction, real(self.epsilon)


@dataclass(frozen=True, slots=True)
class Nadam:
    """Adam with Nesterov momentum.

    With ``u_t = beta_1 (1 - 0.96^t / 2)``, ``p_t = p_(t-1) u_t``
    and ``m`` and ``v`` as in Adam:
    ``w -= lr (u_(t+1) m / (1 - p_t u_(t+1)) + (1 - u_t) g / (1 - p_t))
    / (sqrt(v / (1 - beta_2^t)) + epsilon)``.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    kernel: ClassVar[str] = "nadam"

    def slots(self) -> tuple[Slot, ...]:
        return Slot("momentum"), Slot("velocity")

    def _u(self, step: int) -> float:
        return self.beta_1 * (1 - 0.5 * 0.96**step)

    def advance(self, step: int, memory: Mapping[str, float]) -> Memory:
        return {"u_product": memory.get("u_product", 1.0) * self._u(step)}

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        product, now, after = memory["u_product"], self._u(step), self._u(step + 1)
        return (
            lr,
            real(1 - real(self.beta_1)),
            real(1 - real(self.beta_2)),
            real(after / (1 - product * after)),
            real((1 - now) / (1 - product)),
            1 - real(self.beta_2) ** real(step),
            real(self.epsilon),
        )


@dataclass(frozen=True, slots=True)
class Ftrl(SlotRule):
    """Follow the regularized leader.

    With ``p = -learning_rate_power``:
    ``z += g + 2 shrinkage w - ((n + g²)^p - n^p) / lr w; n += g²``, then
    ``w = (clip(z, -l1, l1) - z) / (n^p / lr + 2 (l2 + beta / (2 lr)))``.
    """

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0
    kernel: ClassVar[str] = "ftrl"

    def slots(self) -> tuple[Slot, ...]:
        return Slot("accumulator", self.initial_accumulator_value), Slot("linear")

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        l2 = real(self.l2_regularization_strength) + real(self.beta) / (2 * lr)
        return (
            lr,
            real(-self.learning_rate_power),
            real(self.l1_regularization_strength),
            2 * l2,
            real(2 * self.l2_shrinkage_regularization_strength),
            self.learning_rate_power == -0.5,
        )


@dataclass(frozen=True, slots=True)
class Lion(SlotRule):
    """``w -= lr sign(beta_1 m + (1 - beta_1) g); m = beta_2 m + (1 - beta_2) g``."""

    beta_1: float = 0.9
    beta_2: float = 0.99
    kernel: ClassVar[str] = "lion"

    def slots(self) -> tuple[Slot, ...]:
        return (Slot("momentum"),)

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        beta_1, beta_2 = real(self.beta_1), real(self.beta_2)
        return lr, beta_1, 1 - beta_1, beta_2, 1 - beta_2


@dataclass(frozen=True, slots=True)
class ScheduleFreeAdamW(SlotRule):
    """Schedule-free AdamW.

    ``z`` is where the gradient steps are made, ``x`` the average of all ``z``, and ``w`` lies
    between them. With ``lr`` growing from 0 for the first warmup_steps:
    ``v += (g² - v)(1 - beta_2); z -= lr g / (sqrt(v / (1 - beta_2^t)) + epsilon)``,
    ``x = (w - (1 - beta_1) z) / beta_1; x += (z - x) / t``, then
    ``w = (1 - beta_1) z + beta_1 x``. The slot has ``z - w``, which is 0 at first.

    The paper computes the first ``x`` from the ``z`` before the step. Keras means to, but with
    TensorFlow its "old" value is the variable itself, which has changed by then.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    warmup_steps: int = 0
    kernel: ClassVar[str] = "schedule_free_adamw"

    def slots(self) -> tuple[Slot, ...]:
        return Slot("distance"), Slot("velocity")

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        real = type(lr)
        if self.warmup_steps > 0:
            lr = lr * min(real(step) / real(self.warmup_steps), real(1))
        return (
            lr,
            real(self.beta_1),
            1 - real(self.beta_2),
            1 - real(self.beta_2) ** real(step),
            real(self.epsilon),
            1 / real(step),
        )
