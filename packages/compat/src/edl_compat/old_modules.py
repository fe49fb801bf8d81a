"""Serve the modules of ElasticDL under their old names, when a model file imports one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = "edl_compat"
_PREPROCESSING_LAYERS = (
    *("concatenate_with_offset", "discretization", "hashing", "index_lookup", "log_round"),
    *("normalizer", "round_identity", "sparse_embedding", "to_number", "to_ragged", "to_sparse"),
)

# Old module, to the module of this package that has its names.
_SERVED: dict[str, str] = {
    "elasticdl.python.common.log_util": "logs",
    "elasticdl.python.common.log_utils": "logs",
    "elasticdl.python.common.odps_io": "maxcompute",
    "elasticdl.python.data.data_reader": "data_readers",
    "elasticdl.python.data.odps_io": "maxcompute",
    "elasticdl.python.data.reader": "data_readers",
    "elasticdl.python.data.reader.data_reader": "data_readers",
    "elasticdl.python.data.reader.odps_reader": "data_readers",
    "elasticdl.python.elasticdl.callbacks": "callbacks",
    "elasticdl.python.elasticdl.feature_column.feature_column": "columns",
    "elasticdl.python.elasticdl.layers.embedding": "embedding",
    "elasticdl.python.worker.prediction_outputs_processor": "predictions",
    "elasticdl_preprocessing.constants": "statistics",
    "elasticdl_preprocessing.feature_column.feature_column": "columns",
    "elasticdl_preprocessing.layers": "preprocessing",
    "elasticdl_preprocessing.utils.analyzer_utils": "statistics",
    "elasticdl_preprocessing.utils.decorators": "statistics",
    **{f"elasticdl_preprocessing.layers.{n}": "preprocessing" for n in _PREPROCESSING_LAYERS},
}


def _packages() -> set[str]:
    """Return the packages that contain the served modules."""
    parts = [name.split(".") for name in _SERVED]
    return {".".join(part[:size]) for part in parts for size in range(1, len(part))}


class OldModules(MetaPathFinder):
    """Finds old modules that are not installed; installed ones come first."""

    def __init__(self) -> None:
        self._packages = _packages()

    @classmethod
    def serve(cls) -> None:
        """Serve the old modules in this process from now on."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.append(cls())

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _SERVED and fullname not in self._packages:
            return None
        return ModuleSpec(
            fullname, _Loader(_SERVED.get(fullname)), is_package=fullname in self._packages
        )


class _Loader(Loader):
    """Fill an old module with the names of the module that replaces it."""

    def __init__(self, replacement: str | None) -> None:
        self._replacement = replacement

    def exec_module(self, module: ModuleType) -> None:
        if self._replacement is not None:
            replacement = importlib.import_module(f"{_PACKAGE}.{self._replacement}")
            public = {n: v for n, v in vars(replacement).items() if not n.startswith("_")}
            vars(module).update(public)
