"""Generated model zoos, loaded in this process as a worker loads them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

LoadZoo = Callable[[Path], ModuleType]


@pytest.fixture
def load_zoo(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadZoo]:
    """Return a function that imports the model file of a zoo."""

    def load(zoo: Path) -> ModuleType:
        monkeypatch.syspath_prepend(str(zoo))
        for name in ("edl_fit_code", "edl_fit_model"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module("edl_fit_model")

    yield load
    for name in ("edl_fit_code", "edl_fit_model"):
        sys.modules.pop(name, None)
