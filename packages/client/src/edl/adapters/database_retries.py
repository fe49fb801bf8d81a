"""Repeats what a database that restarts has broken off."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from edl.adapters.database_errors import DatabaseUnreachable

Result = TypeVar("Result")

_PAUSES_S = (1, 2, 4, 8, 15, 30, 60)

pause = time.sleep
"""Tests let time pass without waiting."""


def retry_while_unreachable(action: Callable[[], Result], report: Callable[[str], None]) -> Result:
    """The result of an action, which is repeated for two minutes while there is no database.

    Args:
        action: may be done twice: what is broken off has no effect, or the same one.
        report: called with a line for each failure.

    Raises:
        DatabaseUnreachable: the database is still away.
    """
    for seconds in _PAUSES_S:
        try:
            return action()
        except DatabaseUnreachable as error:
            report(f"{error.what}; trying again in {seconds} s")
        pause(seconds)
    return action()
