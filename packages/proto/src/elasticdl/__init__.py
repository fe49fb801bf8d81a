"""The package that model files and Python scripts import.

``Mode`` and ``ElasticDLSpec`` are for model files. All else is the Python API: ``train``,
``evaluate``, ``predict``, ``resume``, ``export``, ``convert_data``, ``load_data``, ``fit``, ``job``
and ``attach``, and the magics of ``%load_ext elasticdl``. It belongs to the client and what plugs
into it, and is imported on first use, so that the image of a worker needs neither.
"""

from __future__ import annotations

import importlib
from typing import Any

from elasticdl.python.common.constants import Mode
from elasticdl.spec import ElasticDLSpec

__all__ = [
    "DataError",
    "EdlError",
    "ElasticDLSpec",
    "ErrorCode",
    "ExistsError",
    "JobFailedError",
    "MachineError",
    "Mode",
    "ModelFileError",
    "NotFoundError",
    "StoppedError",
    "UsageError",
    "attach",
    "convert_data",
    "evaluate",
    "export",
    "fit",
    "job",
    "load_data",
    "predict",
    "resume",
    "train",
]

# Name to the module that defines it, imported on first use.
_LAZY_NAMES = {
    "train": "edl.api",
    "evaluate": "edl.api",
    "predict": "edl.api",
    "resume": "edl.api",
    "export": "edl.api",
    "convert_data": "edl.data_api",
    "load_data": "edl.data_api",
    "attach": "edl_keras.fit_job",
    "fit": "edl_keras.fit",
    "job": "edl_keras.job",
    "load_magics": "edl.notebook",
    "EdlError": "edl_proto.errors",
    "DataError": "edl.api_errors",
    "ErrorCode": "edl.api_errors",
    "ExistsError": "edl.api_errors",
    "JobFailedError": "edl.api_errors",
    "MachineError": "edl.api_errors",
    "ModelFileError": "edl.api_errors",
    "NotFoundError": "edl.api_errors",
    "StoppedError": "edl.api_errors",
    "UsageError": "edl.api_errors",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'elasticdl' has no attribute {name!r}")
    try:
        module = importlib.import_module(_LAZY_NAMES[name])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "edl_keras":
            raise AttributeError(
                f"elasticdl.{name} needs edl-keras, which is not installed here: "
                "pip install edl-keras"
            ) from error
        if error.name not in ("edl", *_LAZY_NAMES.values()):
            raise
        raise AttributeError(
            f"elasticdl.{name} needs the client, which is not installed here: "
            "pip install edl-client"
        ) from error
    return getattr(module, name)


def load_ipython_extension(shell: Any) -> None:
    """Add ``%edl``, ``%%edl`` and ``%%edl_sql`` to IPython, which calls this for ``%load_ext``.

    Raises:
        AttributeError: the client is not installed.
    """
    __getattr__("load_magics")(shell)
