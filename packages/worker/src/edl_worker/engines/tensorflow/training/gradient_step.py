"""One gradient for each minibatch: from parameters and a minibatch to a flat gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import StepResult
from edl_worker.engines.tensorflow.embedding.lookup_stages import in_stage
from edl_worker.engines.tensorflow.embedding.lookups import LookupOrder
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction
from edl_worker.engines.tensorflow.training.arena import Weight
from edl_worker.engines.tensorflow.training.wire_values import WireValues, flatten, memory

# Operations that only look at a variable. Any other one that is given it may change it.
_READ_OPERATIONS = frozenset(
    ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
)


class GradientStep:
    """A model whose variables are always those of one parameter version.

    A step restores the variables that are sent: it returns the change of moving statistics as a
    difference and undoes it, so that a repeated step gives the same.

    Attributes:
        unconnected: ids of the variables that the loss does not depend on; of the last trace.
    """

    def __init__(
        self,
        model_file: ModelFile,
        wire: WireValues,
        tables: EmbeddingTables | None = None,
        *,
        checks: bool = False,
        jit: bool = False,
    ) -> None:
        """Make the traced functions.

        Args:
            model_file: the model.
            wire: its weights.
            tables: its embedding tables.
            checks: find out whether gradients are finite.
            jit: compile with XLA.
        """
        self._file = model_file
        self._wire = wire
        self._tables = tables
        groups = wire.arena.model.groups
        self._trainable = [group.weights for group in groups if group.trainable]
        self._state = [group.weights for group in groups if not group.trainable]
        self._order: LookupOrder | None = None
        self._checks = checks
        self.unconnected: frozenset[int] = frozenset()
        self._step = SizeAgnosticFunction(self._trace_step, jit=jit)

    @property
    def traces(self) -> int:
        """The number of traces of the step; more than a few is an error."""
        return self._step.traces

    def prime(self, batch: Batch) -> None:
        """Trace the step once for all sizes of a minibatch shaped like this one."""
        open_nests: tuple[Any, Any] = None, None
        if self._tables is not None:
            lookups = self._tables.find_rows(batch, training=True).lookups
            self._order = lookups.order
            open_nests = tf.TensorSpec([None], tf.float32), lookups.tensors
        inputs = batch.features, batch.labels, batch.weights
        self._step.prime(batch.size, *inputs, open_nests=open_nests)

    def compute(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None
    ) -> StepResult:
        """Return the gradient of a minibatch's loss at the present values; nothing else changes.

        Args:
            batch: the minibatch.
            wanted: the rows that it needs of the model's embedding tables, if there are any.
            rows: their numbers, float32 of shape (n,), one row after the other.
        """
        open_nests: tuple[Any, Any] = None, None
        if wanted is not None:
            self._order = wanted.lookups.order
            open_nests = tf.convert_to_tensor(rows), wanted.lookups.tensors
        inputs = batch.features, batch.labels, batch.weights
        whole, delta, loss, quantized, finite = self._step(
            batch.size, *inputs, open_nests=open_nests
        )
        found, precision = self._wire.select(whole, quantized)
        gradient = memory(found)
        return StepResult(
            gradient[: len(self._trainable)],
            memory(delta),
            float(loss),
            precision=precision,
            has_finite_gradient=not self._checks or bool(finite),
            **({} if wanted is None else {"rows": gradient[-1]}),
        )

    # --- traced ----------------------------------------------------------------------------

    def _trace_step(
        self,
        features: Any,
        labels: Any,
        weights: Any,
        rows: tf.Tensor | None,
        lookups: Any,
    ) -> tuple[Any, ...]:
        trainable = [weight for group in self._trainable for weight in group]
        state = [weight for group in self._state for weight in group]
        before = {weight.name: tf.convert_to_tensor(weight.variable.value) for weight in state}
        graph = tf.compat.v1.get_default_graph()
        if self._file.custom_train_step is not None:
            weights = self._file.training_weights(labels, weights)
            loss, found = self._file.custom_train_step.gradients(
                features, labels, weights, [w.variable for w in trainable]
            )
            modified = find_modified(graph, state)
            row_gradients = []
        else:
            with tf.GradientTape() as tape:
                stage = None
                if rows is not None:
                    assert self._tables is not None
                    assert self._order is not None
                    tape.watch(rows)
                    stage = self._tables.serve(self._order, rows, lookups)
                with in_stage(stage):
                    loss = training_loss(self._file, features, labels, weights)
                    scaled = self._file.optimizer.scale_loss(loss)
            if self._tables is not None:
                self._tables.check_step(graph)
            modified = find_modified(graph, state)
            # Of rows it is merged: the sum over all lookups of an id.
            sources = [w.variable.value for w in trainable]
            found, row_gradients = tape.gradient(scaled, (sources, [] if rows is None else [rows]))
        pairs = list(zip(trainable, found, strict=True))
        self.unconnected = frozenset(id(w.variable) for w, gradient in pairs if gradient is None)
        gradients = {w.name: _or_zeros(gradient, w.variable.value) for w, gradient in pairs}
        flat = [flatten([gradients[w.name] for w in group]) for group in self._trainable]
        delta = []
        if modified:
            delta = [
                flatten(
                    [
                        w.variable.value - before[w.name]
                        if w.name in modified
                        else tf.zeros(w.shape, w.dtype)
                        for w in group
                    ]
                )
                for group in self._state
            ]
            with tf.control_dependencies(delta):
                for weight in state:
                    if weight.name in modified:
                        weight.variable.value.assign(before[weight.name])
        finite = has_finite_norm(flat) if self._checks else ()
        flat += [_or_zeros(gradient, rows) for gradient in row_gradients]
        return flat, delta, loss, self._wire.quantize(flat), finite


def _or_zeros(gradient: Any, value: Any) -> Any:
    return tf.zeros_like(value) if gradient is None else gradient


def has_finite_norm(gradients: Sequence[Any]) -> tf.Tensor:
    """Whether the norm of a gradient is finite, of which parts may be sparse or None."""
    parts = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients if g is not None]
    squares = [tf.cast(tf.nn.l2_loss(part), tf.float32) for part in parts]
    return tf.math.is_finite(tf.add_n(squares)) if squares else tf.constant(True)


def training_loss(file: ModelFile, features: Any, labels: Any, weights: Any) -> tf.Tensor:
    """Return the loss of a minibatch, regularization included."""
    outputs = file.call(features, training=True)
    weights = file.training_weights(labels, weights)
    loss = tf.cast(file.compute_loss(outputs, labels, weights), tf.float32)
    added = file.model.losses
    if added:
        loss += tf.add_n([tf.cast(tf.reduce_sum(term), tf.float32) for term in added])
    return loss


def find_modified(graph: Any, weights: Sequence[Weight]) -> set[str]:
    """Return the names of the weights that the operations traced so far may modify."""
    handles = {graph.capture(w.variable.value.handle).name: w.name for w in weights}
    found = set()
    for operation in graph.get_operations():
        if operation.type in _READ_OPERATIONS:
            continue
        for tensor in operation.inputs:
            if tensor.dtype == tf.resource and tensor.name in handles:
                found.add(handles[tensor.name])
    return found
