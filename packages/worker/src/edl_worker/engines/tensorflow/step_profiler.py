"""Profiles some steps of this worker with TensorFlow's profiler."""

from __future__ import annotations

import gzip
import logging
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import tensorflow as tf

from edl_proto.errors import EdlError

log = logging.getLogger(__name__)


class StepProfiler:
    """A profiler that counts steps, and profiles those from ``first`` to ``last``.

    A step is from the computation of one minibatch to that of the next, with what lies between.
    A profile that cannot be made or sent is a warning; training continues without it.

    Args:
        first: number of a step, counted from 1.
        last: is profiled, too.
        send: takes the finished profile, an XSpace, gzipped.
    """

    def __init__(self, first: int, last: int, send: Callable[[bytes], None]) -> None:
        self._first = first
        self._last = last
        self._send = send
        self._step = 0
        self._done = False
        self._open = ExitStack()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def begin_step(self) -> None:
        """Note that the next step begins, so the one before has ended."""
        self._step += 1
        if self._done or self._step < self._first:
            return
        self._open.close()
        try:
            if self._step > self._last:
                self._finish()
                return
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="edl-profile-")
                tf.profiler.experimental.start(self._folder.name)
        except (EdlError, OSError, tf.errors.OpError) as error:
            self._done = True
            log.warning("the profile is not complete: %s", error)
            return
        self._open.enter_context(tf.profiler.experimental.Trace("train", step_num=self._step, _r=1))

    def _finish(self) -> None:
        self._done = True
        if self._folder is None:
            return
        with self._folder:
            tf.profiler.experimental.stop()
            for written in Path(self._folder.name).rglob("*.xplane.pb"):
                packed = gzip.compress(written.read_bytes(), compresslevel=1)
                self._send(packed)
                log.info("steps %d to %d were profiled", self._first, self._last)
