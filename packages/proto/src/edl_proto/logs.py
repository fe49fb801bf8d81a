"""One form of log lines for every process of edl."""

from __future__ import annotations

import logging
import os
import sys


def set_up(default: int = logging.INFO) -> None:
    """Write log lines to stderr, from the level on that ``EDL_LOG_LEVEL`` names.

    Args:
        default: the level if the variable is not set, or names no level.
    """
    named = os.environ.get("EDL_LOG_LEVEL", "").upper()
    logging.basicConfig(
        level=logging.getLevelNamesMapping().get(named, default),
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        stream=sys.stderr,
    )
