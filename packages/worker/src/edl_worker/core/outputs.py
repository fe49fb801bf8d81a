"""The names of a model's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SINGLE = "prediction"
"""Name of the feature that holds the output of a model with one output."""


def named_outputs(outputs: Any, output_names: Sequence[str]) -> dict[str, Any]:
    """Return the outputs of a model by name: ``prediction``, or a name for each of several."""
    match outputs:
        case Mapping():
            return {str(name): value for name, value in outputs.items()}
        case list() | tuple() if len(outputs) == 1:
            return {SINGLE: outputs[0]}
        case list() | tuple():
            names = list(output_names)
            if len(names) != len(outputs) or len(set(names)) != len(names):
                names = [f"{SINGLE}_{index}" for index in range(len(outputs))]
            return dict(zip(names, outputs, strict=True))
        case _:
            return {SINGLE: outputs}
