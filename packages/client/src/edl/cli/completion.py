"""What the scripts of ``edl completion`` complete besides commands and options."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def job_names(incomplete: str) -> list[str]:
    """Names of all jobs that begin like this, newest first; none if they cannot be listed."""
    from edl.app import job_catalog
    from edl_proto.errors import EdlError

    try:
        return [name for name in job_catalog().names() if name.startswith(incomplete)]
    except EdlError:
        return []


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes to one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete
