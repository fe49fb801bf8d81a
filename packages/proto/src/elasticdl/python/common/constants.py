"""The phase a dataset function or a metric is asked for."""

from __future__ import annotations

from enum import IntEnum


class Mode(IntEnum):
    """Phase of a job; the numbers are those of ``edl.v1.Mode``."""

    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3
