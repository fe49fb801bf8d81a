"""Checks periodically that the engine answers."""

from __future__ import annotations

import logging
import threading

from edl_builder.core.failure import BuilderError
from edl_builder.core.ports import Engine
from edl_builder.metrics import Metrics

log = logging.getLogger(__name__)

_EVERY_S = 5.0
_CLOSE_S = 2.0
"""A call that hangs ends with the process."""


class EngineMonitor:
    """Knows whether an engine answered when it was last asked; asks until it is closed.

    Args:
        engine: which one.
        metrics: also know it.
    """

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._over = threading.Event()
        self.is_ready = False
        self._thread = threading.Thread(target=self._watch, name="engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop asking."""
        self._over.set()
        self._thread.join(_CLOSE_S)

    def _watch(self) -> None:
        self._ask()
        while not self._over.wait(_EVERY_S):
            self._ask()

    def _ask(self) -> None:
        was_ready = self.is_ready
        try:
            self._engine.ping()
        except Exception as error:  # an engine may answer anything, and is asked again
            self.is_ready = False
            if was_ready:
                what = error.failure.what if isinstance(error, BuilderError) else repr(error)
                log.warning("builds fail from now on: %s", what)
        else:
            self.is_ready = True
        self._metrics.up.set(self.is_ready)
