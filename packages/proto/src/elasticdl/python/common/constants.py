"""``Mode``, and the variables that model files of ElasticDL read."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

_TEXTS = {
    **dict.fromkeys(("training", "train", "fit"), 1),
    **dict.fromkeys(("evaluation", "evaluate", "eval", "validation", "validate", "test"), 2),
    **dict.fromkeys(("prediction", "predict", "inference", "infer"), 3),
}


class Mode(IntEnum):
    """The phase of a job, with the numbers of ``edl.v1.Mode``.

    It equals the texts that model files compare it with, such as ``mode == "train"``: in ElasticDL
    a mode was a text. A comparison with any other text would never be true.

    Raises:
        ValueError: from ``==`` and ``!=``: it is compared with a text that is no mode.
    """

    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, str):
            return int(self) == _number_of(other)
        return int.__eq__(self, other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = IntEnum.__hash__


def _number_of(text: str) -> int:
    """Return the number of the mode that a text means. Raises: ValueError: it means none."""
    try:
        return _TEXTS[text.strip().lower().rpartition(".")[2]]
    except KeyError:
        raise ValueError(
            f"the mode is compared with {text!r}, which it never is: write mode == Mode.TRAINING, "
            "Mode.EVALUATION or Mode.PREDICTION"
        ) from None


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
