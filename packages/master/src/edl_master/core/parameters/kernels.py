"""The inner loops: each optimizer's update in one pass over memory, compiled by numba.

Importing this module loads numba (some 0.3 s); ``arithmetic`` does so when it is first needed.
All loops release the GIL, so that slices of an arena run on several threads.

Every update kernel has the same first arguments: ``w``, the values; ``g``, the gradient as it
arrived; ``scale``, a factor for the gradient (averaging and clipping by norm at once); ``limit``,
to which each element is clipped (infinity: no clipping); and ``decay``, the part of ``w`` that is
subtracted first. The slots and the numbers of the rule follow, all of the arena's dtype. A slot
that the rule does not use is an empty array. ``elementwise_rules`` has the formulas.

fastmath stays off: it would let the compiler reorder sums, and results would then depend on how
an arena is sliced. Loops are written so that they vectorise nevertheless.
"""

# One-letter names are those of the formulas.
from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import ParamSpec, TypeVar

import numpy as np
from numba import njit

from edl_master.core.parameters.layout import Array

P = ParamSpec("P")
R = TypeVar("R")


def compile_lazily(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first call, once per machine where a folder for the cache can be written."""
    # Division by zero gives infinity as in numpy; the check for it would forbid vectorising.
    options = {"nogil": True, "error_model": "numpy"}
    try:
        result: Callable[P, R] = njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no writable folder: a read-only root file system
        result = njit(**options)(function)
    return result


@compile_lazily
def _ready(g: float, scale: float, limit: float) -> float:
    return min(max(g * scale, -limit), limit)


@compile_lazily
def sgd(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    m: Array,
    lr: float,
    momentum: float,
    has_momentum: bool,
    nesterov: bool,
) -> None:
    """``rules.SGD``; ``m`` is the momentum."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        step = -x * lr
        if has_momentum:
            step = m[i] * momentum - x * lr
            m[i] = step
            if nesterov:
                step = step * momentum - x * lr
        w[i] = w[i] - w[i] * decay + step


@compile_lazily
def adam(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    m: Array,
    v: Array,
    v_max: Array,
    alpha: float,
    rate_1: float,
    rate_2: float,
    epsilon: float,
    amsgrad: bool,
) -> None:
    """``rules.Adam``; ``alpha`` is the learning rate with both bias corrections."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        mi = m[i] + (x - m[i]) * rate_1
        vi = v[i] + (x * x - v[i]) * rate_2
        m[i] = mi
        v[i] = vi
        if amsgrad:
            vi = max(v_max[i], vi)
            v_max[i] = vi
        w[i] = w[i] - w[i] * decay - mi * alpha / (sqrt(vi) + epsilon)


@compile_lazily
def adagrad(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    a: Array,
    lr: float,
    epsilon: float,
) -> None:
    """``rules.Adagrad``; ``a`` is the accumulator."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        ai = a[i] + x * x
        a[i] = ai
        w[i] = w[i] - w[i] * decay - lr * x / sqrt(ai + epsilon)


@compile_lazily
def adadelta(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    a: Array,
    d: Array,
    lr: float,
    rho: float,
    rest: float,
    epsilon: float,
) -> None:
    """``rules.Adadelta``; ``rest`` is ``1 - rho``."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        ai = rho * a[i] + rest * (x * x)
        step = -(sqrt(d[i] + epsilon) * x / sqrt(ai + epsilon))
        a[i] = ai
        d[i] = rho * d[i] + rest * (step * step)
        w[i] = w[i] - w[i] * decay + lr * step


@compile_lazily
def rmsprop(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    v: Array,
    m: Array,
    mean: Array,
    lr: float,
    rho: float,
    rest: float,
    epsilon: float,
    momentum: float,
    has_momentum: bool,
    centered: bool,
) -> None:
    """``rules.RMSprop``; ``rest`` is ``1 - rho``, ``mean`` the mean gradient if centered."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        vi = rho * v[i] + rest * (x * x)
        v[i] = vi
        if centered:
            ci = rho * mean[i] + rest * x
            mean[i] = ci
            vi = vi - ci * ci
        step = lr * x / sqrt(vi + epsilon)
        if has_momentum:
            step = momentum * m[i] + step
            m[i] = step
        w[i] = w[i] - w[i] * decay - step


@compile_lazily
def adamax(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    m: Array,
    u: Array,
    lr: float,
    rate_1: float,
    beta_2: float,
    correction: float,
    epsilon: float,
) -> None:
    """``rules.Adamax``; ``correction`` is ``1 - beta_1^t``."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        mi = m[i] + (x - m[i]) * rate_1
        ui = max(beta_2 * u[i], abs(x))
        m[i] = mi
        u[i] = ui
        w[i] = w[i] - w[i] * decay - lr * mi / (correction * (ui + epsilon))


@compile_lazily
def nadam(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    m: Array,
    v: Array,
    lr: float,
    rate_1: float,
    rate_2: float,
    share_m: float,
    share_g: float,
    correction_2: float,
    epsilon: float,
) -> None:
    """``rules.Nadam``; the shares are the factors of ``m`` and of the gradient."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        mi = m[i] + (x - m[i]) * rate_1
        vi = v[i] + (x * x - v[i]) * rate_2
        m[i] = mi
        v[i] = vi
        step = (share_m * mi + share_g * x) * lr / (sqrt(vi / correction_2) + epsilon)
        w[i] = w[i] - w[i] * decay - step


@compile_lazily
def ftrl(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    n: Array,
    z: Array,
    lr: float,
    power: float,
    l1: float,
    l2_twice: float,
    shrinkage_twice: float,
    square_root: bool,
) -> None:
    """``rules.Ftrl``; ``square_root`` means a power of one half."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        wi = w[i] - w[i] * decay
        ni = n[i] + x * x
        if square_root:
            old, new = sqrt(n[i]), sqrt(ni)
        else:
            old, new = n[i] ** power, ni**power
        zi = z[i] + (x + shrinkage_twice * wi) - (new - old) / lr * wi
        n[i] = ni
        z[i] = zi
        w[i] = (min(max(zi, -l1), l1) - zi) / (new / lr + l2_twice)


@compile_lazily
def lion(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    m: Array,
    lr: float,
    beta_1: float,
    rest_1: float,
    beta_2: float,
    rest_2: float,
) -> None:
    """``rules.Lion``; the rests are ``1 - beta``."""
    for i in range(w.size):
        x = _ready(g[i], scale, limit)
        direction = m[i] * beta_1 + x * rest_1
        step = lr if direction > 0 else (-lr if direction < 0 else direction)
        m[i] = m[i] * beta_2 + x * rest_2
        w[i] = w[i] - w[i] * decay - step


@compile_lazily
def schedule_free_adamw(
    w: Array,
    g: Array,
    scale: float,
    limit: float,
    decay: float,
    d: Array,
    v: Array,
    lr: float,
    beta_1: float,
    rate_2: float,
    correction_2: float,
    epsilon: float,
    weight: float,
) -> None:
    """``rules.ScheduleFreeAdamW``; ``d`` is ``z - w``, ``weight`` is ``1 / t``."""
    for i in range(w.size):
        g_i = _ready(g[i], scale, limit)
        vi = v[i] + (g_i * g_i - v[i]) * rate_2
        v[i] = vi
        z = w[i] + d[i] - lr * g_i / (sqrt(vi / correction_2) + epsilon)
        x = (w[i] - w[i] * decay - (1 - beta_1) * z) / beta_1
        x = (1 - weight) * x + weight * z
        wi = (1 - beta_1) * z + beta_1 * x
        w[i] = wi
        d[i] = z - wi


@compile_lazily
def moving_average(a: Array, w: Array, momentum: float, rest: float, overwrite: bool) -> None:
    """``a`` follows ``w``; with ``overwrite``, ``w`` then becomes ``a``."""
    for i in range(w.size):
        ai = momentum * a[i] + rest * w[i]
        a[i] = ai
        if overwrite:
            w[i] = ai


@compile_lazily
def accumulate(total: Array, g: Array, weight: float, first: bool) -> None:
    """``total`` becomes ``weight * g`` if it is the ``first``, else that is added to it."""
    for i in range(total.size):
        x = g[i] * weight
        total[i] = x if first else total[i] + x


@compile_lazily
def sum_of_squares(g: Array) -> float:
    """Sum in double precision; eight partial sums let it vectorise without reordering."""
    partial = np.zeros(8, np.float64)
    whole = g.size - g.size % 8
    for i in range(0, whole, 8):
        for k in range(8):
            x = np.float64(g[i + k])
            partial[k] += x * x
    for i in range(whole, g.size):
        x = np.float64(g[i])
        partial[0] += x * x
    return float(partial.sum())


@compile_lazily
def largest_magnitude(bits: Array, mask: int) -> int:
    """Return the largest of ``bits & mask``; ``mask``, of the same dtype, drops the sign.

    Floats order as their bits do, and the exponent of infinities and NaNs is the largest there
    is: one integer maximum, which vectorises, shows whether all numbers are finite.
    """
    largest = mask ^ mask
    for i in range(bits.size):
        largest = max(largest, bits[i] & mask)
    return largest
