"""Lets the tests of the master in a pod use the platform of threads of the master's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "master" / "tests"))
