"""The file of a trained model with the state of its layers that is not among its values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.trained_model import check_file_name
from edl_worker.core.layer_state import LayerState

LAYER_STATES = "layer_states.json"

_UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)


def save(states: Sequence[LayerState], path: Path) -> None:
    """Write the states of a model's layers."""
    content = [
        {"name": s.name, "place": s.place, "values": dict(s.values), "optional": s.optional}
        for s in states
    ]
    path.write_text(json.dumps({"layers": content}), encoding="utf-8")


def read(path: Path) -> tuple[LayerState, ...]:
    """Read the states of a model's layers.

    Raises:
        EdlError: CHECKPOINT_DAMAGED, the file is missing or damaged.
    """
    try:
        layers = json.loads(path.read_text(encoding="utf-8"))["layers"]
        for one in layers:  # the trained model may be of someone else
            for file in one["values"].get("assets", ()):
                check_file_name(file)
        return tuple(
            LayerState(
                str(one["name"]),
                str(one["place"]),
                dict(one["values"]),
                bool(one.get("optional")),  # missing in models of earlier versions
            )
            for one in layers
        )
    except _UNREADABLE as error:
        raise EdlError(
            ErrorCode.CHECKPOINT_DAMAGED,
            f"{path.name}, which has the vocabularies of the model, cannot be read: {error}",
            where=str(path),
            remedy="Copy the trained model again, or train it again.",
        ) from None
