"""The Python API of data, which optional packages provide: ``convert_data`` and ``load_data``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PROVIDERS = {
    # name: the distribution that has it, and its module
    "ConversionResult": ("edl-convert", "edl_convert.api"),
    "convert_data": ("edl-convert", "edl_convert.api"),
    "LoadResult": ("edl-sql", "edl_sql.api"),
    "load_data": ("edl-sql", "edl_sql.api"),
}

__all__ = list(_PROVIDERS)


def __getattr__(name: str) -> Any:
    if name not in _PROVIDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    distribution, module = _PROVIDERS[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise AttributeError(
            f"{name} needs {distribution}, which is not installed here: pip install {distribution}"
        ) from None
