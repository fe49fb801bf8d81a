"""One form of log lines for every process of edl."""

from __future__ import annotations

import logging
import os
import sys

from edl_proto.printable import visible


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))  # a message may quote what others wrote


def set_up(default: int = logging.INFO) -> None:
    """Write log lines to stderr, from the level on that ``EDL_LOG_LEVEL`` names.

    Args:
        default: the level if the variable is not set, or names no level.
    """
    named = os.environ.get("EDL_LOG_LEVEL", "").upper()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    level = logging.getLevelNamesMapping().get(named, default)
    logging.basicConfig(level=level, handlers=[handler])
