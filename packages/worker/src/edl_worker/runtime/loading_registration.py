"""Keeps a worker registered while it loads the model file.

The session is busy for the time of an import, and cannot register with a master that replaces the
first one meanwhile. A worker that no master knows sends no heartbeats, and one without
heartbeats is killed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_POLL_S = 0.2


@contextmanager
def keep_registered(
    is_replaced: Callable[[], bool],
    register: Callable[[], object],
    poll_s: float = _POLL_S,
) -> Iterator[None]:
    """Register again whenever the master was replaced while the context lasts.

    On leaving, a registration that has begun is waited for: the session needs its result.

    Args:
        is_replaced: whether a heartbeat has met another master.
        register: registers with the present master; ends ``is_replaced``.
        poll_s: time between two looks.
    """
    loaded = threading.Event()

    def watch() -> None:
        while not loaded.wait(poll_s):
            if is_replaced():
                log.info("the master was replaced while the model file was loading")
                try:
                    register()
                except Exception as error:
                    # The session tries again itself, and reports what is wrong.
                    log.warning("the worker could not register again: %s", error)
                    return

    thread = threading.Thread(target=watch, name="loading-registration", daemon=True)
    thread.start()
    try:
        yield
    finally:
        loaded.set()
        thread.join()
