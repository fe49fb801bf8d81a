"""Values of variables in files: name -> value, as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from edl_proto.errors import EdlError, ErrorCode

_ORDER = "order"
"""Metadata: the names in the order of the model, which the format itself does not keep."""


@dataclass(frozen=True, slots=True)
class NamedValues:
    """The values by name, in the order of the model that they were saved from."""

    arrays: Mapping[str, npt.NDArray[Any]]
    source: str


def save(values: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Write a safetensors file."""
    packed = {name: np.array(value, order="C", copy=None) for name, value in values.items()}
    save_file(packed, path, metadata={_ORDER: json.dumps(list(values))})


def read(path: Path) -> NamedValues:
    """Read a safetensors file, whole. Raises: EdlError: it is missing or damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            order = json.loads((file.metadata() or {}).get(_ORDER, "null")) or list(file.keys())
            if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
                raise ValueError(f"its {_ORDER} is no list of names")
            return NamedValues({name: file.get_tensor(name) for name in order}, str(path))
    except FileNotFoundError:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"there is no file {path.name} in {path.parent}",
            where=str(path),
            remedy="Name a directory that edl train wrote as its --output.",
        ) from None
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise EdlError(
            ErrorCode.CHECKPOINT_DAMAGED,
            f"{path.name} cannot be read: {error}",
            where=str(path),
            remedy="Copy the trained model again, or train it again.",
        ) from None
