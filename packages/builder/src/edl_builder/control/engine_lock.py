"""Mutual exclusion between builds and the pruning of the engine's images."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial

from edl_builder.core.failure import BuilderError
from edl_builder.core.ports import Engine

log = logging.getLogger(__name__)

_TRIES = 60
"""One per tick: an engine needs a moment to end cancelled steps."""


class EngineLock:
    """Shared by builds, exclusive for pruning; pruning never waits for a build."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._builds = 0

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Prevent pruning while a build runs in this context."""
        with self._lock:
            self._builds += 1
        try:
            yield
        finally:
            with self._lock:
                self._builds -= 1

    def prune(self, prune: Callable[[], bool]) -> bool:
        """Prune unless a build runs; no build starts meanwhile.

        Returns:
            The result of ``prune``; true if a build runs, at whose end pruning is tried again.
        """
        with self._lock:
            return prune() if not self._builds else True


class ImagePruner:
    """Removes unfinished and old images from the engine when no build runs.

    Args:
        engine: whose images are removed.
        keep: how many finished images stay, as a cache.
        lock: shared with the builds.
    """

    def __init__(self, engine: Engine, keep: int, lock: EngineLock) -> None:
        self._engine = engine
        self._keep = keep
        self._lock = lock
        self._tries_left = 0

    def prune(self) -> None:
        """Prune now, and again at each ``retry`` while unfinished images are left."""
        self._prune(_TRIES)

    def retry(self, submit: Callable[[Callable[[], None]], None]) -> None:
        """Have ``submit`` prune again in another thread, if the last time left unfinished images.

        An engine that hangs keeps that thread waiting.
        """
        tries, self._tries_left = self._tries_left, 0
        if tries:
            submit(partial(self._prune, tries))

    def _prune(self, tries: int) -> None:
        try:
            is_clean = self._lock.prune(lambda: self._engine.prune(self._keep))
            self._tries_left = 0 if is_clean else tries - 1
        except BuilderError as error:
            log.warning("the engine's images could not be pruned: %s", error.failure.what)
        except Exception:  # an engine may answer anything
            log.exception("the engine's images could not be pruned")
