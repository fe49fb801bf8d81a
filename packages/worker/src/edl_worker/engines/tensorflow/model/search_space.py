"""The hyperparameters that ``build_model(hp)`` asks for, found by building models."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

from edl_proto.errors import EdlError
from edl_worker.core.job import ModelReference
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import DefinitionRaised
from edl_worker.model_file.hyperparameters import PARAMETER, HyperParameters
from edl_worker.model_file.params import parse_params
from edl_worker.model_file.resolver import find_model
from edl_worker.model_file.zoo.module_import import open_zoo

_MAX_BUILDS = 64


def read_search_space(reference: ModelReference) -> list[dict[str, Any]]:
    """Return what a model function asks its ``hp`` for, in order; empty if it takes no ``hp``.

    Some models ask for more than others, as those with more layers. So each value of a choice and
    the end of each range of integers is tried once.

    Raises:
        EdlError: the model with the default values cannot be built.
    """
    params = parse_params(reference.params)
    zoo = open_zoo(reference.model_zoo)
    model = find_model(zoo, reference.model_def)
    fixed = {**params, **(params.get(PARAMETER) or {})}

    def build(values: dict[str, Any]) -> HyperParameters | None:
        names = {name for each in model.constructors() for name in each.settable_names()}
        given = {name: value for name, value in params.items() if name in names}
        given[PARAMETER] = {**fixed, **values}
        caller = DefinitionCaller(zoo.root, given, None, model.constructors())
        if caller.hyperparameters is not None:
            model.create_model(caller)
        return caller.hyperparameters

    found: dict[str, dict[str, Any]] = {}
    waiting: deque[dict[str, Any]] = deque([{}])
    builds = 0
    while waiting and builds < _MAX_BUILDS:
        values = waiting.popleft()
        builds += 1
        # Only the defaults have to work: a trial with other values says itself what is wrong.
        with contextlib.suppress(*((EdlError, DefinitionRaised) if values else ())):
            hyperparameters = build(values)
            if hyperparameters is None:
                return []
            for name, asked in hyperparameters.asked.items():
                if name not in found:
                    found[name] = asked
                    waiting.extend({**values, name: other} for other in _other_values(asked))
    return list(found.values())


def _other_values(asked: dict[str, Any]) -> list[Any]:
    if asked["type"] == "choice":
        return [value for value in asked["values"] if value != asked["default"]]
    return [asked["high"]] if asked["type"] == "int" and asked["high"] != asked["default"] else []
