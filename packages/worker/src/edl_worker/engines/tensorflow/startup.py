"""Imports TensorFlow and Keras in about two thirds of the usual processor time.

Most of a worker's start is this import, and every restart of an instance waits for it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def _quiet_tensorflow() -> None:
    """Set what TensorFlow and Keras read while they are imported.

    What is set already stays, except for the backend of Keras: edl trains with TensorFlow only,
    and people who use another backend elsewhere set it in their shell for all programs.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Otherwise the first process takes nearly all memory of a GPU, and the next one fails.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if not os.path.exists("/proc/driver/nvidia") and not os.path.exists("/dev/dxg"):
        # Without a GPU, looking for one only costs time and prints errors.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def import_tensorflow() -> None:
    """Import both packages; whatever imports them afterwards finds them loaded.

    Keras imports scikit-learn, where that is installed, for wrappers that a model file cannot
    use: an estimator has a training loop of its own. Without it the import takes 1.2 s of
    processor time less, measured with TensorFlow 2.21 and scikit-learn 1.8.

    Raises:
        ImportError: TensorFlow or Keras is not installed, or does not fit this machine.
    """
    _quiet_tensorflow()
    with _without_collections(), _hide("sklearn"):
        import keras  # noqa: F401  (later imports find it)
        import tensorflow  # noqa: F401  (the same)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage: an import makes a million objects and drops hardly any of them.

    Objects that live until the process ends are left out of later collections, too.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _hide(package: str) -> Iterator[None]:
    """Let imports of a package fail, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # which makes imports fail
    try:
        yield
    finally:
        del sys.modules[package]
