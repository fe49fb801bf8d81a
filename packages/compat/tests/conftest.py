"""The jobs, data and model zoos of the worker's tests, which these tests need as well."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_WORKER_TESTS = Path(__file__).parents[2] / "worker" / "tests"
sys.path.append(str(_WORKER_TESTS))
_spec = importlib.util.spec_from_file_location("worker_conftest", _WORKER_TESTS / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
worker_conftest = importlib.util.module_from_spec(_spec)
sys.modules["worker_conftest"] = worker_conftest
_spec.loader.exec_module(worker_conftest)

job = worker_conftest.job
points = worker_conftest.points
zoo = worker_conftest.zoo
