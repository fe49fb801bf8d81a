"""What the scripts of ``edl completion`` complete besides commands, options and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from edl.app import job_catalog
from edl_proto.errors import EdlError


def job_names(ctx: Any, param: Any, incomplete: str) -> list[str]:
    """Return the names of all jobs that begin like this, newest first; none if listing fails."""
    try:
        return [name for name in job_catalog().names() if name.startswith(incomplete)]
    except EdlError:
        return []


def one_of(values: Iterable[str]) -> Callable[[Any, Any, str], list[str]]:
    """Return a function that completes to one of these words."""

    def complete(ctx: Any, param: Any, incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete
