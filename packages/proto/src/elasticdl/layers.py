"""Layers for model files: ``from elasticdl.layers import Embedding``.

They belong to the worker, which depends on TensorFlow, and are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY_NAMES = {"Embedding": "edl_worker.engines.tensorflow.embedding.layer"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'elasticdl.layers' has no attribute {name!r}")
    try:
        module = importlib.import_module(_LAZY_NAMES[name])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "edl_worker":
            raise
        raise AttributeError(
            f"elasticdl.layers.{name} needs the worker, which is not installed here: "
            "pip install edl-worker"
        ) from error
    return getattr(module, name)
