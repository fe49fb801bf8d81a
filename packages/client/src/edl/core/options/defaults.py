"""Defaults that depend on other options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.core.options import prediction
from edl.core.options.option import Given, Verb
from edl.core.options.strategies import (
    ALLREDUCE,
    AUTO,
    FIXED_BY_ALLREDUCE,
    LOCAL,
    PARAMETER_SERVER,
    is_open,
)
from edl.core.options.value_types import WorkerRange
from edl.core.platforms import DOCKER, KUBERNETES


def resolve(verb: Verb, given: Mapping[str, Given], values: dict[str, Any]) -> None:
    """Complete ``values`` in place, so that no later stage needs a default.

    Args:
        values: of all options of the verb, as ``read`` returns them.
    """
    if values["platform"] == KUBERNETES:
        values["gpus"] = ""
    elif not values["gpus"]:
        # A container engine without NVIDIA's toolkit refuses a container that asks for GPUs.
        values["gpus"] = "none" if values["platform"] == DOCKER else "each"
    if not values["metrics_auth"]:
        values["metrics_auth"] = "none" if values["platform"] == KUBERNETES else "token"
    if verb is Verb.TRAIN:
        _resolve_strategy(given, values)
    if verb is Verb.PREDICT and not values["format"]:
        values["format"] = prediction.format_of(values["output"]) or "recordio"


def _resolve_strategy(given: Mapping[str, Given], values: dict[str, Any]) -> None:
    if values["strategy"] == ALLREDUCE:
        # A settings file may have other values, for other jobs.
        values.update({name: fixed.value for name, fixed in FIXED_BY_ALLREDUCE.items()})
        return
    if values["strategy"] == AUTO:
        if is_open(given, values):
            values["update"] = AUTO
        else:
            values["strategy"] = PARAMETER_SERVER
    if values["strategy"] == LOCAL:
        values["strategy"], values["num_workers"] = PARAMETER_SERVER, WorkerRange(1, 1)
    _resolve_overlap(given, values)
    _resolve_update(given, values)


def _resolve_overlap(given: Mapping[str, Given], values: dict[str, Any]) -> None:
    fresh = values["update"] == "sync" or (
        "max_staleness" in given and values["max_staleness"] == 0
    )
    # A settings file may ask for overlap in other jobs than this one.
    values["overlap"] = values["overlap"] and not fresh and values["local_steps"] == 1


def _resolve_update(given: Mapping[str, Given], values: dict[str, Any]) -> None:
    workers = values["num_workers"].max
    if values["update"] != "sync":
        values["grads_to_wait"] = 0
    elif "grads_to_wait" not in given:
        values["grads_to_wait"] = workers
    if values["update"] != "bounded":
        values["max_staleness"] = 0
    elif "max_staleness" not in given:
        # Every worker may be one round behind. With overlap, each has one more gradient on its way.
        values["max_staleness"] = workers * (2 if values["overlap"] else 1)
