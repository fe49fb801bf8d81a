"""Repeats what a database has broken off that restarts, or is locked by others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from edl_sql.databases.errors import DatabaseLocked, DatabaseUnreachable

Result = TypeVar("Result")

_PAUSES_S = (1, 2, 4, 8, 15, 30, 60)

pause = time.sleep
"""Tests let time pass without waiting."""


def retry_while_unreachable(action: Callable[[], Result], report: Callable[[str], None]) -> Result:
    """The result of an action, which is repeated for two minutes while there is no database.

    Also while others lock what it needs.

    Args:
        action: may be done twice: what is broken off has no effect, or the same one.
        report: called with a line for each failure.

    Raises:
        DatabaseUnreachable, DatabaseLocked: it is still so.
    """
    for seconds in _PAUSES_S:
        try:
            return action()
        except (DatabaseUnreachable, DatabaseLocked) as error:
            report(f"{error.what}; trying again in {seconds} s")
        pause(seconds)
    return action()
