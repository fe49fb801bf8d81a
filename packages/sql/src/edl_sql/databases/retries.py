"""Retries of what failed because a database restarted, or other sessions held locks."""

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
    """Return an action's result; retry it for two minutes while the database is unreachable.

    It is also retried while other sessions lock what it needs.

    Args:
        action: must be idempotent.
        report: called with a line for each failure.

    Raises:
        DatabaseUnreachable, DatabaseLocked: the last attempt failed, too.
    """
    for seconds in _PAUSES_S:
        try:
            return action()
        except (DatabaseUnreachable, DatabaseLocked) as error:
            report(f"{error.what}; trying again in {seconds} s")
        pause(seconds)
    return action()
