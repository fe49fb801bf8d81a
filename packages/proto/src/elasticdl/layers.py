"""Layers for model files: ``from elasticdl.layers import Embedding``.

They live in the worker, which brings TensorFlow, and are looked up when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_ELSEWHERE = {"Embedding": "edl_worker.embedding.layer"}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'elasticdl.layers' has no attribute {name!r}")
    try:
        module = importlib.import_module(_ELSEWHERE[name])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "edl_worker":
            raise
        raise AttributeError(
            f"elasticdl.layers.{name} needs the worker, which is not installed here: "
            "pip install edl-worker"
        ) from error
    return getattr(module, name)
