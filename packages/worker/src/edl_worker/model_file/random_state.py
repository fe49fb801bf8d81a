"""Random numbers that belong to one pipeline, whatever other threads draw meanwhile."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager_context

# Python's, numpy's and TensorFlow's generators are global: whoever seeds them holds this lock
# until its draws are done.
_lock = threading.RLock()


class RandomDrawDetector:
    """Whether anything was drawn from the global generators since this was made."""

    def __init__(self) -> None:
        self._before = self._state()

    def __bool__(self) -> bool:
        return self._state() != self._before

    def _state(self) -> tuple[object, ...]:
        name, keys, *rest = np.random.get_state(legacy=True)
        generator = getattr(eager_context.context(), "_rng", None)
        of_tensorflow = generator.getstate() if generator is not None else None
        return random.getstate(), name, np.asarray(keys).tobytes(), tuple(rest), of_tensorflow


@contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """Runs the body with all global generators at a state that ``seed`` alone fixes.

    The generators are back in their former state afterwards. What TensorFlow builds in the
    body (``dataset.shuffle``, random ops in ``dataset.map``) keeps the seeds it drew.
    """
    words = hashlib.blake2b(repr(seed).encode(), digest_size=8).digest()
    number = int.from_bytes(words, "little")
    with _lock:
        python_state, numpy_state = random.getstate(), np.random.get_state()
        random.seed(number)
        np.random.seed(number % 2**32)
        restore_tensorflow = _seed_tensorflow(number % 2**31)
        try:
            yield
        finally:
            restore_tensorflow()
            np.random.set_state(numpy_state)
            random.setstate(python_state)


def seed_everything(seed: int) -> None:
    """Seeds the global generators for good: initial values of a model."""
    with _lock:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        tf.random.set_seed(seed % 2**31)


class _Restore:
    def __init__(self, seed: int | None, generator: random.Random | None) -> None:
        self._seed, self._generator = seed, generator

    def __call__(self) -> None:
        context = eager_context.context()
        context._seed, context._rng = self._seed, self._generator


def _seed_tensorflow(seed: int) -> _Restore:
    # tf.random.set_seed would also drop every compiled kernel: the training step that follows
    # would take 18 ms longer, once per task. So the two fields that it sets are set here.
    context = eager_context.context()
    restore = _Restore(context._seed, getattr(context, "_rng", None))
    context._seed, context._rng = seed, random.Random(seed)
    return restore
