"""Looks at data before a job is started with it."""

from __future__ import annotations

from collections.abc import Iterable


def check(patterns: Iterable[str], form: str, option: str) -> None:
    raise NotImplementedError
