"""The global random generators: seeded for one pipeline, and restored afterwards."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import operation_seed_state, seed_operations

# The generators of Python, numpy and TensorFlow are global: a thread that seeds them holds this
# lock until it has drawn its numbers.
_lock = threading.RLock()


class RandomDrawDetector:
    """A detector of draws from the global generators since its creation."""

    def __init__(self) -> None:
        self._before = self._state()

    def __bool__(self) -> bool:
        return self._state() != self._before

    def _state(self) -> tuple[object, ...]:
        name, keys, *rest = np.random.get_state(legacy=True)
        return (
            random.getstate(),
            name,
            np.asarray(keys).tobytes(),
            tuple(rest),
            operation_seed_state(),
        )


@contextmanager
def seed_generators(*seed: int) -> Iterator[None]:
    """Run the block with all global generators in a state that depends on ``seed`` only.

    The former state of the generators is restored afterwards. What TensorFlow builds in the
    block (``dataset.shuffle``, random operations in ``dataset.map``) keeps the seeds it drew.
    """
    words = hashlib.blake2b(repr(seed).encode(), digest_size=8).digest()
    number = int.from_bytes(words, "little")
    with _lock:
        python_state, numpy_state = random.getstate(), np.random.get_state()
        random.seed(number)
        np.random.seed(number % 2**32)
        restore_tensorflow = seed_operations(number % 2**31)
        try:
            yield
        finally:
            restore_tensorflow()
            np.random.set_state(numpy_state)
            random.setstate(python_state)


def seed_globally(seed: int) -> None:
    """Seed the global generators without a later restore, for the initial values of a model."""
    with _lock:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        tf.random.set_seed(seed % 2**31)
