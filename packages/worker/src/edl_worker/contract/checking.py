"""``edl zoo check``: all contract errors at once, before any worker starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edl_proto.errors import EdlError

from edl_worker.contract.choice import ModelChoice


def check(choice: ModelChoice) -> list[EdlError]:
    """All errors of a model file; none if it can train."""
    raise NotImplementedError


def run_check(spec_json_path: str | Path) -> dict[str, Any]:
    """The answer of ``python -m edl_worker check --spec FILE``, ready for JSON."""
    raise NotImplementedError
