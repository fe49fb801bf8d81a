"""Functions of minibatches, traced as seldom as possible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import call_directly

log = logging.getLogger(__name__)


class SizeAgnosticFunction:
    """A traced function of minibatches: one trace for all sizes, where the model allows it.

    The last minibatch of a task is usually smaller than the others; without this each task
    might begin or end with a trace of some hundred milliseconds.

    Args:
        function: takes nests of tensors whose first dimension is the size of the minibatch.
        jit: compile it with XLA, for each size by itself.
    """

    def __init__(self, function: Callable[..., Any], *, jit: bool = False) -> None:
        self._function = function
        self._jit = jit or None
        self._traced = tf.function(
            function, reduce_retracing=True, autograph=False, jit_compile=self._jit
        )
        self._primed = False
        self._concrete: Any = None
        self._specs: list[Any] = []

    def prime(self, size: int, *nests: Any, open_nests: Sequence[Any] = ()) -> None:
        """Trace for minibatches shaped like this one, if that has not been done yet.

        Args:
            size: of the minibatch.
            nests: its tensors.
            open_nests: further tensors, or their specifications; their first dimension is open.
        """
        if self._primed:
            return
        self._primed = True
        specs = [open_size_spec(nest, size) for nest in nests]
        specs += [tf.nest.map_structure(_open_spec, nest) for nest in open_nests]
        try:
            self._concrete = self._traced.get_concrete_function(*specs)
            self._specs = tf.nest.flatten(specs, expand_composites=True)
        except Exception as error:
            # A model that needs to know the size is traced for each size. What else may be
            # wrong is raised again by the call, where the records at work are known.
            log.debug("tracing each size of minibatch by itself: %r", error)
            self._traced = tf.function(self._function, autograph=False, jit_compile=self._jit)

    def __call__(self, size: int, *nests: Any, open_nests: Sequence[Any] = ()) -> Any:
        self.prime(size, *nests, open_nests=open_nests)
        given = *nests, *open_nests
        # TensorFlow needs about a millisecond to find out by itself which trace fits.
        if self._concrete is not None:
            tensors = tf.nest.flatten(given, expand_composites=True)
            if self._fits(tensors):
                present = (tensor for tensor in tensors if tensor is not None)
                return call_directly(self._concrete, [*map(tf.convert_to_tensor, present)])
        return self._traced(*given)

    def _fits(self, tensors: Sequence[Any]) -> bool:
        """Return whether the first trace takes these tensors."""
        return len(tensors) == len(self._specs) and all(
            spec is None
            if tensor is None
            else spec is not None
            and spec.dtype == tensor.dtype
            and spec.shape.is_compatible_with(tensor.shape)
            for spec, tensor in zip(self._specs, tensors, strict=True)
        )

    @property
    def traces(self) -> int:
        """The number of traces of the function."""
        return int(self._traced.experimental_get_tracing_count())


def _open_spec(value: Any) -> Any:
    if value is None:
        return None
    spec = value if isinstance(value, tf.TypeSpec) else tf.type_spec_from_value(value)
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def open_size_spec(nest: Any, size: int) -> Any:
    """Return the specification of a nest of tensors in which the number of elements is open."""

    def one(value: Any) -> Any:
        if value is None:
            return None
        spec = tf.type_spec_from_value(value)
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape[0] == size:
            return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
        return spec

    return tf.nest.map_structure(one, nest)
