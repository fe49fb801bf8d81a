"""``Mode``: the phase in which edl calls a dataset function or a metrics function."""

from __future__ import annotations

from enum import IntEnum


class Mode(IntEnum):
    """Phase of a job, with the numbers of ``edl.v1.Mode``."""

    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3
