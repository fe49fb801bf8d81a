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

__all__ = ["ElasticDLSpec", "Mode", "evaluate", "predict", "train"]

_CLIENT_NAMES = frozenset(("train", "evaluate", "predict"))


def __getattr__(name: str) -> Any:
    if name not in _CLIENT_NAMES:
        raise AttributeError(f"module 'elasticdl' has no attribute {name!r}")
    try:
        client = importlib.import_module("edl.api")
    except ModuleNotFoundError as error:
        if error.name not in ("edl", "edl.api"):
            raise
        raise AttributeError(
            f"elasticdl.{name} needs the client, which is not installed here: "
            "pip install edl-client"
        ) from error
    return getattr(client, name)
