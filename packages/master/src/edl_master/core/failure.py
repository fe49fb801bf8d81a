"""A failure as the core keeps it: a stable code, and a text for the user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: what, where, and what to do; ``code`` is a name of ``edl.v1.ErrorCode``."""

    code: str
    what: str
    where: str = ""
    remedy: str = ""
    detail: str = ""
