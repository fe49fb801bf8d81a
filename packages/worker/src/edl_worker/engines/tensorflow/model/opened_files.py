"""Tells which files TensorFlow itself opens for a model file, past Python's ``open``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from edl_worker.model_file.zoo.outside_files import note_opened

_READERS: tuple[Any, ...] = (
    tf.io.gfile.GFile,
    tf.lookup.TextFileInitializer,
    tf.data.TextLineDataset,
    tf.data.TFRecordDataset,
    tf.data.experimental.CsvDataset,
)
"""Classes whose first argument names files."""


@contextmanager
def note_opened_files() -> Iterator[None]:
    """Note the files that readers of TensorFlow are made for while the context lasts."""
    originals = {kind: kind.__init__ for kind in _READERS}
    for kind, original in originals.items():
        kind.__init__ = _noting(original)
    try:
        yield
    finally:
        for kind, original in originals.items():
            kind.__init__ = original


def _noting(initialize: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(initialize)
    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        note_opened(next(iter((*args, *kwargs.values())), None))
        initialize(self, *args, **kwargs)

    return note
