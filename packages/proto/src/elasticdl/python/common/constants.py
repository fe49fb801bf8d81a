"""``Mode``, and the variables that model files of ElasticDL read."""

from __future__ import annotations

from enum import IntEnum


class Mode(IntEnum):
    """The phase of a job, with the numbers of ``edl.v1.Mode``."""

    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3


class MaxComputeConfig:
    """The variables that held the access to MaxCompute; edl sets none of them."""

    PROJECT_NAME = "MAXCOMPUTE_PROJECT"
    ACCESS_ID = "MAXCOMPUTE_AK"
    ACCESS_KEY = "MAXCOMPUTE_SK"
    ENDPOINT = "MAXCOMPUTE_ENDPOINT"
    TUNNEL_ENDPOINT = "MAXCOMPUTE_TUNNEL_ENDPOINT"


class ODPSConfig:
    """The variables of ``MaxComputeConfig`` under their first names."""

    PROJECT_NAME = "ODPS_PROJECT_NAME"
    ACCESS_ID = "ODPS_ACCESS_ID"
    ACCESS_KEY = "ODPS_ACCESS_KEY"
    ENDPOINT = "ODPS_ENDPOINT"
