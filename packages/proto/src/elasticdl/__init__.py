"""The import name of the design documents.

``Mode`` and ``ElasticDLSpec`` are for model files. ``train``, ``evaluate`` and ``predict`` are
the Python API; they live in the client and are looked up when first used, so that a worker's
image needs no client.
"""

from __future__ import annotations

import importlib
from typing import Any

from elasticdl.python.common.constants import Mode
from elasticdl.spec import ElasticDLSpec

__all__ = ["EdlError", "ElasticDLSpec", "Mode", "evaluate", "predict", "train"]

# Looked up when first used: a model file needs none of them.
_ELSEWHERE = {
    "train": "edl.api",
    "evaluate": "edl.api",
    "predict": "edl.api",
    "EdlError": "edl_proto.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'elasticdl' has no attribute {name!r}")
    try:
        module = importlib.import_module(_ELSEWHERE[name])
    except ModuleNotFoundError as error:
        if error.name not in ("edl", "edl.api"):
            raise
        raise AttributeError(
            f"elasticdl.{name} needs the client, which is not installed here: "
            "pip install edl-client"
        ) from error
    return getattr(module, name)
