"""Rules that need a variable as a whole, with the names and defaults of Keras 3.

As in ``elementwise_rules``, ``w`` is the value, ``g`` its gradient, ``lr`` the learning rate and
``t`` the number of the step. Numbers are computed in the dtype of the variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edl_master.core.parameters.layout import Array, Variable
from edl_master.core.parameters.update_rules import Slot, Step, WholeVariableRule


@dataclass(frozen=True, slots=True)
class Adafactor(WholeVariableRule):
    """Adafactor: of a matrix, only the mean squares of rows and of columns are kept.

    With ``b = 1 - t^beta_2_decay`` and ``s = g² + epsilon_1``: ``v = b v + (1 - b) s``, where for
    matrices ``row`` and ``column`` follow the means of ``s`` in the same way, and
    ``v = row column / mean(row)``. Then, with ``rms`` the root of the mean square,
    ``u = g / sqrt(v); u = u / max(1, rms(u) / clip_threshold)`` and
    ``w -= max(epsilon_2, rms(w)) min(lr, 1 / sqrt(t)) u``.

    ``relative_step`` makes no difference: Keras applies the same minimum twice.
    """

    beta_2_decay: float = -0.8
    epsilon_1: float = 1e-30
    epsilon_2: float = 1e-3
    clip_threshold: float = 1.0
    relative_step: bool = True

    def slots(self, variable: Variable) -> tuple[Slot, ...]:
        shape = variable.shape
        if len(shape) < 2:
            return (Slot("velocity"),)
        return Slot("row", shape=shape[:-1]), Slot("column", shape=(*shape[:-2], shape[-1]))

    def update(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        real = value.dtype.type
        t = real(step.number)
        beta = 1 - t ** real(self.beta_2_decay)
        squares = gradient * gradient + real(self.epsilon_1)
        if value.ndim < 2:
            velocity = _follow(slots["velocity"], squares, beta)
        else:
            row = _follow(slots["row"], squares.mean(axis=-1), beta)
            column = _follow(slots["column"], squares.mean(axis=-2), beta)
            row = row / row.mean(axis=-1, keepdims=True)
            velocity = row[..., None] * column[..., None, :]
        update = gradient / np.sqrt(velocity)
        update /= max(real(1), _rms(update) / real(self.clip_threshold))
        rate = min(step.learning_rate, 1 / np.sqrt(t))
        value -= max(real(self.epsilon_2), _rms(value)) * rate * update


@dataclass(frozen=True, slots=True)
class Lamb(WholeVariableRule):
    """Adam whose step is as long as the learning rate times the norm of the variable.

    ``m`` and ``v`` as in Adam, ``u = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon)``,
    then ``w -= lr u |w| / |u|``; the quotient is 1 if a norm is 0.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def slots(self, variable: Variable) -> tuple[Slot, ...]:
        return Slot("momentum"), Slot("velocity")

    def update(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        real = value.dtype.type
        momentum, velocity, t = slots["momentum"], slots["velocity"], real(step.number)
        momentum += (gradient - momentum) * real(1 - self.beta_1)
        velocity += (gradient * gradient - velocity) * real(1 - self.beta_2)
        update = momentum / (1 - real(self.beta_1) ** t)
        update /= np.sqrt(velocity / (1 - real(self.beta_2) ** t)) + real(self.epsilon)
        norms = np.sqrt(np.sum(value * value)), np.sqrt(np.sum(update * update))
        ratio = norms[0] / norms[1] if min(norms) > 0 else real(1)
        value -= ratio * step.learning_rate * update


@dataclass(frozen=True, slots=True)
class Muon(WholeVariableRule):
    """Momentum made orthogonal by Newton-Schulz steps for matrices, AdamW for everything else.

    ``m = momentum m + g; x = g + momentum m`` (``m`` without nesterov), ``x`` divided by its norm;
    ``ns_steps`` times ``a = x xᵀ; x = muon_a x + (muon_b a + muon_c a²) x``, of the transposed
    matrix if that has fewer rows; then ``w -= lr rms_rate sqrt(max(rows, columns)) x``.
    """

    adam_beta_1: float = 0.9
    adam_beta_2: float = 0.999
    epsilon: float = 1e-7
    exclude_layers: tuple[str, ...] = ()
    muon_a: float = 3.4445
    muon_b: float = -4.7750
    muon_c: float = 2.0315
    adam_lr_ratio: float = 1
    momentum: float = 0.95
    ns_steps: int = 5
    nesterov: bool = True
    exclude_embeddings: bool = True
    adam_weight_decay: float | None = 0.004
    rms_rate: float | None = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "exclude_layers", tuple(self.exclude_layers or ()))

    def slots(self, variable: Variable) -> tuple[Slot, ...]:
        return Slot("momentum"), Slot("velocity", used=self._by_adam(variable))

    def weight_decay(self, variable: Variable, configured: float) -> float:
        return self.adam_weight_decay or 0.0 if self._by_adam(variable) else configured

    def update(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        if self._by_adam(variable):
            self._adam(value, gradient, slots["momentum"], slots["velocity"], step)
            return
        real = value.dtype.type
        momentum = slots["momentum"]
        momentum += gradient + momentum * real(self.momentum - 1)
        if self.nesterov:
            update = self._orthogonal(gradient + real(self.momentum) * momentum)
        else:
            update = self._orthogonal(momentum)
        rate = step.learning_rate
        if self.rms_rate is not None:
            rate = rate * np.sqrt(real(max(value.shape))) * real(self.rms_rate)
        value -= rate * update

    def _by_adam(self, variable: Variable) -> bool:
        return (
            len(variable.shape) != 2
            or (self.exclude_embeddings and "embedding" in variable.name.lower())
            or any(re.search(keyword, variable.name) for keyword in self.exclude_layers)
        )

    def _adam(
        self, value: Array, gradient: Array, momentum: Array, velocity: Array, step: Step
    ) -> None:
        real = value.dtype.type
        t = real(step.number)
        rate = step.learning_rate * real(self.adam_lr_ratio)
        corrections = 1 - real(self.adam_beta_1) ** t, 1 - real(self.adam_beta_2) ** t
        momentum += (gradient - momentum) * real(1 - self.adam_beta_1)
        velocity += (gradient * gradient - velocity) * real(1 - self.adam_beta_2)
        alpha = rate * np.sqrt(corrections[1]) / corrections[0]
        value -= momentum * alpha / (np.sqrt(velocity) + real(self.epsilon))

    def _orthogonal(self, x: Array) -> Array:
        real = x.dtype.type
        a, b, c = real(self.muon_a), real(self.muon_b), real(self.muon_c)
        is_tall = x.shape[0] > x.shape[1]
        x = x.T if is_tall else x
        x = x / (np.sqrt(np.sum(x * x)) + real(1e-7))
        for _ in range(self.ns_steps):
            squares = x @ x.T
            x = a * x + (b * squares + c * squares @ squares) @ x
        return x.T if is_tall else x


def _follow(average: Array, numbers: Array, momentum: Any) -> Array:
    """Move an average towards numbers, in place; return it."""
    average *= momentum
    average += (1 - momentum) * numbers
    return average


def _rms(x: Array) -> Any:
    return np.sqrt(np.mean(x * x))
