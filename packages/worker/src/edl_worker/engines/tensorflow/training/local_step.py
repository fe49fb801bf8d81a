"""A step that updates the values with the model file's own optimizer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import training_loss


class LocalStep:
    """A model whose variables its own optimizer updates after each minibatch."""

    def __init__(self, model_file: ModelFile, arena: Arena) -> None:
        """Make the traced function.

        Args:
            model_file: the model.
            arena: its weights.
        """
        self._file = model_file
        self._trainable = [group.weights for group in arena.groups if group.trainable]
        self._rate: float | None = None  # of the optimizer, once callbacks have set another
        self._step = SizeAgnosticFunction(self._trace_step)
        self._optimizers = [model_file.optimizer]
        if model_file.custom_train_step is not None:  # which builds them for what they update
            self._optimizers = model_file.custom_train_step.optimizers
        else:
            model_file.optimizer.build([w.variable for group in self._trainable for w in group])

    def prime(self, batch: Batch) -> None:
        """Trace the step once for all sizes of a minibatch shaped like this one."""
        self._step.prime(batch.size, batch.features, batch.labels, batch.weights)

    def place_optimizer(self, version: int, learning_rate: float | None) -> None:
        """Set where the optimizer stands; see ``StepEngine``."""
        # A version is one minibatch: where a schedule of the learning rate stands.
        for optimizer in self._optimizers:
            optimizer.iterations.assign(version)
        if learning_rate is not None or self._rate is not None:
            given = keras.optimizers.serialize(self._file.optimizer)["config"]["learning_rate"]
            self._rate = given if self._rate is None else self._rate
            rate = self._rate if learning_rate is None else learning_rate
            self._file.optimizer.learning_rate = rate

    def update(self, batch: Batch) -> float:
        """Update the variables with a minibatch; return its loss."""
        return float(self._step(batch.size, batch.features, batch.labels, batch.weights))

    # --- traced ----------------------------------------------------------------------------

    def _trace_step(self, features: Any, labels: Any, weights: Any) -> tf.Tensor:
        if self._file.custom_train_step is not None:
            weights = self._file.training_weights(labels, weights)
            return self._file.custom_train_step.run(features, labels, weights)
        with tf.GradientTape() as tape:
            loss = training_loss(self._file, features, labels, weights)
        variables = [weight.variable for group in self._trainable for weight in group]
        gradients = tape.gradient(
            loss,
            [variable.value for variable in variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # Dense, as the master's updates are: a row without a gradient still has its momentum.
        self._file.optimizer.apply([tf.convert_to_tensor(g) for g in gradients], variables)
        return loss
