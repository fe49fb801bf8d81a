"""The strategies of training, and the options that only one of them has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edl.core.options.option import Given

AUTO, ALLREDUCE, PARAMETER_SERVER = "auto", "allreduce", "parameter-server"
"""The values of ``--strategy``. With ``auto`` the model decides: all-reduce for one without
embedding tables."""

LOCAL = "local"
"""ElasticDL's third one: training without other workers."""

OF_ELASTICDL: Mapping[str, str] = {
    "allreducestrategy": ALLREDUCE,
    "parameterserverstrategy": PARAMETER_SERVER,
    "local": LOCAL,
}
"""Strategies by ElasticDL's names, in lower case."""


@dataclass(frozen=True, slots=True)
class FixedOption:
    """An option that all-reduce leaves no choice about.

    Attributes:
        value: the one that it has.
        reason: a clause that says why it has no other.
    """

    value: object
    reason: str


FIXED_BY_ALLREDUCE: Mapping[str, FixedOption] = {
    "update": FixedOption("replicated", "each step adds up the gradients of all workers"),
    "grads_to_wait": FixedOption(0, "each step has one minibatch of each worker"),
    "max_staleness": FixedOption(0, "no gradient is ever behind"),
    "overlap": FixedOption(False, "a step ends when all workers have the sum of the gradients"),
    "local_steps": FixedOption(1, "workers exchange their gradients in each step"),
    "wire_precision": FixedOption("float32", "workers add up numbers of 32 bits"),
    "embedding_threshold": FixedOption(
        0, "there are no embedding tables with it yet, so every layer stays in the model"
    ),
    "parameter_servers": FixedOption(0, "the workers themselves hold the parameters"),
}
"""By the option's Python name."""


def is_open(given: Mapping[str, Given], values: Mapping[str, Any]) -> bool:
    """Return whether the model can still decide between the strategies: no option has done so."""
    return all(
        name not in given or values[name] == fixed.value
        for name, fixed in FIXED_BY_ALLREDUCE.items()
    )
