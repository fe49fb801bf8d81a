"""The weights of a model as they are sent: in float32, or rounded to 16 bits."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edl_worker.core.job import WirePrecision
from edl_worker.core.layout import WeightGroup
from edl_worker.engines.tensorflow.internals import call_directly
from edl_worker.engines.tensorflow.quantization import dequantize, quantize
from edl_worker.engines.tensorflow.training.arena import Arena, Weight

log = logging.getLogger(__name__)


class WireValues:
    """A converter of a model's weights into payloads, and of payloads into weights.

    The wire precision of a job is decided here. Requests and replies only carry the precision of
    what they contain.

    Attributes:
        arena: the weights.
        precision: in which gradients and newer values should be sent.
    """

    def __init__(self, arena: Arena, precision: WirePrecision = WirePrecision.FLOAT32) -> None:
        self.arena = arena
        self.precision = precision
        self._overflow_logged = False
        self._assign = {
            each: tf.function(
                partial(self._trace_assign, each),
                autograph=False,
                input_signature=[
                    [tf.TensorSpec([sum(g.sizes)], g.dtype_as(each)) for g in arena.groups],
                ],
            )
            for each in {WirePrecision.FLOAT32, precision}
        }
        self._traced: dict[WirePrecision, Any] = {}

    def assign(
        self, payload: npt.NDArray[np.uint8], precision: WirePrecision = WirePrecision.FLOAT32
    ) -> None:
        """Give all weights the values of a payload, which is copied.

        Args:
            payload: the values.
            precision: of the payload; that of the job, or float32.
        """
        flats = self.arena.views(payload, precision)
        if precision not in self._traced:
            self._traced[precision] = self._assign[precision].get_concrete_function()
        call_directly(self._traced[precision], [tf.convert_to_tensor(flat) for flat in flats])

    def quantize(self, gradient: Sequence[tf.Tensor]) -> Sequence[Any]:
        """Return gradients in 16 bits, and whether they are finite then; empty if float32 is sent.

        Args:
            gradient: of the trainable groups and of rows.
        """
        if self.precision == WirePrecision.FLOAT32:
            return ()
        return quantize(gradient, self.precision)

    def select(
        self, gradient: Sequence[tf.Tensor], quantized: Sequence[Any]
    ) -> tuple[Sequence[tf.Tensor], WirePrecision]:
        """Return the gradients to send and their precision: float32 if 16 bits would overflow.

        Args:
            gradient: of the trainable groups and of rows.
            quantized: what ``quantize`` has made of them.
        """
        if not quantized:
            return gradient, WirePrecision.FLOAT32
        if bool(quantized[-1]):
            return quantized[0], self.precision
        if not self._overflow_logged:
            self._overflow_logged = True
            log.warning(
                "gradients with numbers outside the range of %s are sent as float32",
                self.precision.name.lower(),
            )
        return gradient, WirePrecision.FLOAT32

    # --- traced ----------------------------------------------------------------------------

    def _trace_assign(self, precision: WirePrecision, flats: list[tf.Tensor]) -> None:
        for group, flat in zip(self.arena.groups, flats, strict=True):
            for weight, part in split(group, flat):
                if flat.dtype != group.dtype:
                    part = dequantize(part, precision)
                weight.variable.value.assign(tf.cast(part, weight.variable.dtype))


def flatten(tensors: Sequence[Any]) -> tf.Tensor:
    """Return tensors as one; sparse gradients of embeddings become dense here."""
    return tf.concat([tf.reshape(tf.convert_to_tensor(t), [-1]) for t in tensors], 0)


def split(group: WeightGroup[Weight], flat: tf.Tensor) -> Iterator[tuple[Weight, tf.Tensor]]:
    """Yield the weights of a group, each with its part of a flat tensor."""
    for weight, part in zip(group.weights, tf.split(flat, group.sizes), strict=True):
        yield weight, tf.reshape(part, weight.shape)


def memory(tensors: Sequence[Any]) -> tuple[memoryview, ...]:
    """Return the memory of eager tensors, copied only from a device that has its own."""
    return tuple(
        memoryview(tensor if "CPU" in tensor.backing_device else tensor.numpy()).cast("B")
        for tensor in tensors
    )
