"""Calls some of the master's compiled loops, so that forks need not load them again."""

from __future__ import annotations

import importlib

import numpy as np


def call() -> None:
    """Call what every store of parameters calls first, on a single number.

    A process's first call of any loop lets numba load what it knows of numpy, for a second of
    processor time.
    """
    arithmetic = importlib.import_module("edl_master.core.parameters.arithmetic")
    tiny = {"": np.zeros(1, np.float32)}
    arithmetic.accumulate(tiny, tiny, 1.0, first=True, executor=None)
    arithmetic.all_finite(tiny.values(), None)
