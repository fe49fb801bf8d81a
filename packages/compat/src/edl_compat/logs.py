"""The logger of ElasticDL: ``from elasticdl.python.common.log_utils import default_logger``."""

from __future__ import annotations

import logging


def get_logger(
    name: str,
    level: int | str = "INFO",
    handlers: list[logging.Handler] | None = None,
    update: bool = False,
) -> logging.Logger:
    """Return a logger that writes into the worker's log.

    Args:
        handlers: further handlers.
        update: ignored; a logger may always be asked for again.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    for handler in handlers or ():
        logger.addHandler(handler)
    return logger


default_logger = get_logger("elastic.logger")
