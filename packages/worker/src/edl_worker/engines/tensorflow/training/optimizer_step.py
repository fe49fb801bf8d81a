"""Updates of a model's values by its own optimizer, as Keras's ``fit`` makes them.

A worker makes them for its local steps, or for all steps if replicas train in step: alone in one
function with the gradient, and with others from the sum of their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import numpy.typing as npt
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.internals import (
    built_variables,
    inner_optimizers,
    learning_rate_of,
)
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import (
    find_modified,
    has_finite_norm,
    training_loss,
)
from edl_worker.engines.tensorflow.training.own_optimizers import build_optimizers, find_updates
from edl_worker.engines.tensorflow.training.wire_values import split


class OptimizerStep:
    """A model whose variables its own optimizer updates; its functions are traced when used.

    Args:
        file: the model; its optimizers are built.
        arena: its weights.
        unconnected: returns the ids of the variables without a gradient, which optimizers leave
            alone.
        jit: compile with XLA.
    """

    def __init__(
        self,
        file: ModelFile,
        arena: Arena,
        unconnected: Callable[[], Collection[int]] = tuple,
        *,
        jit: bool = False,
    ) -> None:
        self._file = file
        self._arena = arena
        self._unconnected = unconnected
        self._jit = jit
        build_optimizers(file)
        self._optimizers = [optimizer for optimizer, _ in find_updates(file)]
        inner = inner_optimizers(file.optimizer)
        self._rate_owner = inner[0] if len(inner) == 1 else None
        self._own_rate = None if self._rate_owner is None else learning_rate_of(self._rate_owner)
        if isinstance(self._own_rate, keras.Variable):
            self._own_rate = float(self._own_rate.numpy())
        self._forget_traces()

    def _forget_traces(self) -> None:
        self._step = SizeAgnosticFunction(self._trace_step, jit=self._jit)
        self._apply = tf.function(
            self._trace_apply, autograph=False, reduce_retracing=True, jit_compile=self._jit or None
        )

    @property
    def traces(self) -> int:
        """The number of traces of the step or of the update, whichever is larger."""
        return max(self._step.traces, int(self._apply.experimental_get_tracing_count()))

    def prime(self, batch: Batch) -> None:
        """Trace the step once for all sizes of a minibatch shaped like this one."""
        self._step.prime(batch.size, batch.features, batch.labels, batch.weights)

    def place_optimizer(self, version: int, learning_rate: float | None) -> None:
        """Set where the optimizer stands; see ``StepEngine``."""
        # A version is one minibatch: where a schedule of the learning rate stands.
        for optimizer in self._optimizers:
            optimizer.iterations.assign(version)
        self.set_learning_rate(learning_rate)

    def set_learning_rate(self, rate: float | None) -> None:
        """Set the learning rate; see ``ReplicaEngine``."""
        own, owner = self._own_rate, self._rate_owner or self._file.optimizer
        if isinstance(own, float):
            owner.learning_rate = own if rate is None else rate
        elif rate is not None:
            # Keras takes no number in the place of a schedule.
            owner.learning_rate = keras.optimizers.schedules.ExponentialDecay(rate, 1, 1.0)
            self._forget_traces()
        elif own is not None and learning_rate_of(owner) is not own:
            owner.learning_rate = own
            self._forget_traces()

    def update(self, batch: Batch) -> float:
        """Update the variables with a minibatch; return its loss.

        Nothing changes if the loss is not finite. It is NaN if the gradient is not finite.
        """
        return float(self._step(batch.size, batch.features, batch.labels, batch.weights))

    def apply(
        self, gradient: Sequence[npt.NDArray[Any]], state_delta: Sequence[npt.NDArray[Any]]
    ) -> None:
        """Update the variables with a gradient; see ``ReplicaEngine``."""
        flats = [tf.convert_to_tensor(flat) for flat in gradient]
        self._apply(flats, [tf.convert_to_tensor(flat) for flat in state_delta])

    def finish(self) -> None:
        """Give the model the values that the optimizer ends with; see ``ReplicaEngine``."""
        own = self._file.custom_train_step
        optimizer = self._file.optimizer if own is None else own.model.optimizer
        if optimizer is not None and optimizer.built:
            optimizer.finalize_variable_values(built_variables(optimizer))

    # --- traced ----------------------------------------------------------------------------

    def _trace_step(self, features: Any, labels: Any, weights: Any) -> tf.Tensor:
        graph, own = tf.compat.v1.get_default_graph(), self._file.custom_train_step
        undone = [w for w in self._arena.model.weights if own is not None or not w.trainable]
        if own is not None:
            undone += self._arena.optimizer_weights
        before = {weight.name: tf.convert_to_tensor(weight.variable.value) for weight in undone}
        if own is not None:
            weights = self._file.training_weights(labels, weights)
            loss = own.run(features, labels, weights)
            modified = find_modified(graph, undone)
        else:
            optimizer = self._file.optimizer
            with tf.GradientTape() as tape:
                loss = training_loss(self._file, features, labels, weights)
                scaled = optimizer.scale_loss(loss)
            modified = find_modified(graph, undone)
            variables = self._file.model.trainable_variables
            gradients = tape.gradient(scaled, [variable.value for variable in variables])
            if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
                loss = tf.where(has_finite_norm(gradients), loss, tf.constant(float("nan")))

        def update() -> tf.Tensor:
            if own is None:
                optimizer.apply(gradients, variables)
            return loss

        def undo() -> tf.Tensor:
            for weight in undone:
                if weight.name in modified:
                    weight.variable.value.assign(before[weight.name])
            return loss

        return tf.cond(tf.math.is_finite(loss), update, undo)

    def _trace_apply(self, gradient: list[tf.Tensor], delta: list[tf.Tensor]) -> None:
        found: dict[int, tf.Tensor] = {}
        trainable = [group for group in self._arena.model.groups if group.trainable]
        for group, flat in zip(trainable, gradient, strict=True):
            found.update((id(weight.variable), part) for weight, part in split(group, flat))
        for variable in self._unconnected():
            found.pop(variable, None)
        state = [group for group in self._arena.model.groups if not group.trainable]
        for group, flat in zip(state, delta, strict=False):
            for weight, part in split(group, flat):
                weight.variable.value.assign_add(part)
        for optimizer, variables in find_updates(self._file):
            optimizer.apply([found.get(id(variable)) for variable in variables], variables)
