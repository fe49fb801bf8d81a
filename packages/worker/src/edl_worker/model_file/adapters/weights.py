"""The weights of classes, and of the losses of several outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article


def adapt_class_weight(definition: Definition, caller: DefinitionCaller) -> dict[int, float]:
    """Return the weight of each class that ``class_weight`` gives.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    value = adapt_value(definition, caller)
    try:
        weights = {int(number): float(weight) for number, weight in dict(value).items()}
    except (TypeError, ValueError):
        names = [key for key in value if isinstance(key, str)] if isinstance(value, dict) else []
        raise definition.error(
            f"names classes by the text{'s'[: len(names) != 1]} {', '.join(map(repr, names))}, and "
            "the labels of a job are numbers"
            if names
            else f"is {type_with_article(value)}, not a weight for each class",
            "Write a dictionary of class numbers: class_weight = {0: 1.0, 1: 5.0}.",
        ) from None
    for number, weight in weights.items():
        if not math.isfinite(weight):
            raise definition.error(
                f"gives class {number} the weight {weight}", "Give each class a finite weight."
            )
    return weights


def adapt_value(definition: Definition, caller: DefinitionCaller) -> Any:
    """Return a plain value, or what a function without parameters returns."""
    value = caller.call(definition) if callable(definition.value) else definition.value
    return dict(value) if isinstance(value, Mapping) else value
