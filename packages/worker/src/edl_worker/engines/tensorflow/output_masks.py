"""The masks that Keras keeps at the outputs of a model, such as those of ``mask_zero=True``.

Losses and metrics leave out what a mask leaves out. Keras keeps a mask as an attribute of its
tensor, which a traced function drops from what it takes and returns.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import keras_mask, set_keras_mask


def read_masks(outputs: Any) -> list[Any]:
    """Return the mask of each output, or None for it, in the order of their names."""
    return [keras_mask(output) for output in tf.nest.flatten(outputs)]


def set_masks(outputs: Any, masks: list[Any]) -> None:
    """Give outputs the masks that ``read_masks`` has returned for them."""
    for output, mask in zip(tf.nest.flatten(outputs), masks, strict=True):
        if mask is not None:
            set_keras_mask(output, mask)
