"""One step of training: from parameters and a minibatch to a flat gradient."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edl_worker.core.job import WirePrecision
from edl_worker.embedding.lookup_stages import in_stage
from edl_worker.embedding.tables import EmbeddingTables, RowRequest
from edl_worker.model_file import Batch, ModelFile
from edl_worker.tensors.quantization import dequantize, quantize
from edl_worker.tensors.tracing import SizeAgnosticFunction
from edl_worker.training.arena import Arena, Weight

log = logging.getLogger(__name__)

# Operations that only look at a variable. Any other one that is given it may change it.
_READS = frozenset(
    ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one minibatch.

    Attributes:
        gradient: bytes of the trainable groups, in wire order.
        state_delta: bytes of the state groups; empty when training changes no state.
        loss: of the minibatch, regularization included.
        rows: bytes of the gradients of rows, for each embedding table.
        precision: of gradient and rows; float32 if a number overflows in 16 bits.
    """

    gradient: tuple[memoryview, ...]
    state_delta: tuple[memoryview, ...]
    loss: float
    rows: tuple[memoryview, ...] = ()
    precision: WirePrecision = WirePrecision.FLOAT32

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss)


class Trainer:
    """A model whose variables are always those of one parameter version, or made from it.

    A step leaves no trace in the variables that travel: what it does to moving statistics is
    taken out as a difference and undone, so that a step that is repeated gives the same.
    """

    def __init__(
        self,
        model_file: ModelFile,
        arena: Arena,
        tables: EmbeddingTables | None = None,
        *,
        local: bool = False,
        precision: WirePrecision = WirePrecision.FLOAT32,
    ) -> None:
        """Make the traced functions.

        Args:
            model_file: the model.
            arena: its variables.
            tables: its embedding tables; None with local steps.
            local: each minibatch updates the variables with the model file's optimizer.
            precision: what gradients are to travel as.
        """
        self._file = model_file
        self._is_local = local
        self._precision = precision
        self._start: list[tf.Tensor] = []
        self._rate: float | None = None  # of the optimizer, once callbacks have set another
        self._overflow_logged = False
        self._tables = tables
        self._arena = arena
        trainable = [g for g in arena.groups if g.trainable]
        state = [g for g in arena.groups if not g.trainable]
        self._trainable = [group.weights for group in trainable]
        self._state = [group.weights for group in state]
        self._step = SizeAgnosticFunction(self._trace_local_step if local else self._trace_step)
        if local:
            assert tables is None, "rows are updated where they are"
            self._local_optimizers = [model_file.optimizer]
            if model_file.custom_train_step is not None:  # which builds them for what they update
                self._local_optimizers = model_file.custom_train_step.optimizers
            else:
                model_file.optimizer.build([w.variable for g in trainable for w in g.weights])
        self._read = tf.function(self._trace_read, autograph=False, input_signature=[])
        self._lookups: tuple[int, ...] = ()
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

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self._file.model

    @property
    def traces(self) -> int:
        """How often the step has been traced; more than a few is an error."""
        return self._step.traces

    def prime(self, batch: Batch) -> None:
        """Trace the step once for all sizes of a minibatch shaped like this one."""
        open_nests: tuple[Any, ...] = ()
        if self._tables is not None:
            wanted = self._tables.wanted(batch, training=True)
            self._lookups = wanted.tables
            open_nests = self._tables.specs(wanted)
        inputs = batch.features, batch.labels, batch.weights
        self._step.prime(batch.size, *inputs, open_nests=open_nests)

    def assign(
        self, payload: npt.NDArray[np.uint8], precision: WirePrecision = WirePrecision.FLOAT32
    ) -> None:
        """Give all weights the values of a payload, which is copied.

        Args:
            payload: the values.
            precision: of the payload; the trainer's or float32.
        """
        flats = self._arena.views(payload, precision)
        self._assign[precision]([tf.convert_to_tensor(flat) for flat in flats])

    def compute(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Sequence[Any] = ()
    ) -> StepResult:
        """The gradient of the loss of a minibatch at the present values.

        Args:
            batch: the minibatch.
            wanted: the rows that it needs of the model's embedding tables, if there are any.
            rows: these rows, an array for each table.
        """
        open_nests: tuple[Any, ...] = ()
        if wanted is not None:
            self._lookups = wanted.tables
            open_nests = [tf.convert_to_tensor(part) for part in rows], list(wanted.at)
        inputs = batch.features, batch.labels, batch.weights
        gradient, delta, loss, row_gradients, quantized = self._step(
            batch.size, *inputs, open_nests=open_nests
        )
        precision = self._gradient_precision(quantized)
        if precision != WirePrecision.FLOAT32:
            gradient, row_gradients, _ = quantized
        return StepResult(
            _memory(gradient), _memory(delta), float(loss), _memory(row_gradients), precision
        )

    def _gradient_precision(self, quantized: Sequence[Any]) -> WirePrecision:
        """The precision of a gradient on the wire: float32 if quantization would overflow."""
        if not quantized:
            return WirePrecision.FLOAT32
        if bool(quantized[-1]):
            return self._precision
        if not self._overflow_logged:
            self._overflow_logged = True
            log.warning(
                "gradients with numbers outside the range of %s are sent as float32",
                self._precision.name.lower(),
            )
        return WirePrecision.FLOAT32

    # --- local steps -----------------------------------------------------------------------

    def begin_local(self, version: int, learning_rate: float | None = None) -> None:
        """Start local steps from the present values, which are those of a version.

        Args:
            learning_rate: what callbacks have set; None: as the optimizer says.
        """
        self._start = list(self._read())
        # A version is one minibatch: where a schedule of the learning rate stands.
        for optimizer in self._local_optimizers:
            optimizer.iterations.assign(version)
        if learning_rate is not None or self._rate is not None:
            given = keras.optimizers.serialize(self._file.optimizer)["config"]["learning_rate"]
            self._rate = given if self._rate is None else self._rate
            rate = self._rate if learning_rate is None else learning_rate
            self._file.optimizer.learning_rate = rate

    def local_step(self, batch: Batch) -> float:
        """Update the variables with a minibatch, and return its loss."""
        return float(self._step(batch.size, batch.features, batch.labels, batch.weights))

    def local_difference(self, loss: float) -> StepResult:
        """The difference of the variables since ``begin_local``, as a gradient.

        Args:
            loss: mean over the minibatches since then.
        """
        difference = [now - then for now, then in zip(self._read(), self._start, strict=True)]
        border = len(self._trainable)
        gradient, delta = difference[:border], difference[border:]
        quantized = self._quantize(gradient, [])
        precision = self._gradient_precision(quantized)
        if precision != WirePrecision.FLOAT32:
            gradient = quantized[0]
        return StepResult(_memory(gradient), _memory(delta), loss, (), precision)

    # --- traced ----------------------------------------------------------------------------

    def _trace_step(
        self,
        features: Any,
        labels: Any,
        weights: Any = None,
        rows: Sequence[tf.Tensor] = (),
        at: Any = (),
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor, list[tf.Tensor], Sequence[Any]]:
        state = [weight for group in self._state for weight in group]
        before = {weight.name: tf.convert_to_tensor(weight.variable.value) for weight in state}
        stage = None if self._tables is None else self._tables.serving(self._lookups, rows, at)
        graph = tf.compat.v1.get_default_graph()
        if self._file.custom_train_step is not None:
            variables = [w.variable for group in self._trainable for w in group]
            weights = self._file.training_weights(labels, weights)
            loss, found = self._file.custom_train_step.gradients(
                features, labels, weights, variables
            )
            modified = _modified(graph, state)
            each = iter(found)
            gradients = [[next(each) for _ in group] for group in self._trainable]
            row_gradients: list[tf.Tensor] = []
        else:
            with tf.GradientTape() as tape:
                tape.watch(rows)
                with in_stage(stage):
                    loss = self._loss(features, labels, weights)
            if self._tables is not None:
                self._tables.check_step(graph)
            modified = _modified(graph, state)
            values = [[w.variable.value for w in group] for group in self._trainable]
            gradients, row_gradients = tape.gradient(
                loss, (values, list(rows)), unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
        flat = [_flatten(group) for group in gradients]
        delta = []
        if modified:
            delta = [
                _flatten(
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
        # This merges the gradients of all lookups of an id.
        merged = [tf.convert_to_tensor(part) for part in row_gradients]
        return flat, delta, loss, merged, self._quantize(flat, merged)

    def _quantize(self, gradient: list[tf.Tensor], rows: list[tf.Tensor]) -> Sequence[Any]:
        """Both in 16 bits, and whether they are finite then; empty if float32 is sent."""
        if self._precision == WirePrecision.FLOAT32:
            return ()
        quantized, fit = quantize([*gradient, *rows], self._precision)
        return quantized[: len(gradient)], quantized[len(gradient) :], fit

    def _loss(self, features: Any, labels: Any, weights: Any) -> tf.Tensor:
        outputs = self._file.call(features, training=True)
        weights = self._file.training_weights(labels, weights)
        loss = tf.cast(self._file.compute_loss(outputs, labels, weights), tf.float32)
        added = self._file.model.losses
        if added:
            loss += tf.add_n([tf.cast(tf.reduce_sum(term), tf.float32) for term in added])
        return loss

    def _trace_local_step(self, features: Any, labels: Any, weights: Any) -> tf.Tensor:
        if self._file.custom_train_step is not None:
            weights = self._file.training_weights(labels, weights)
            return self._file.custom_train_step.run(features, labels, weights)
        with tf.GradientTape() as tape:
            loss = self._loss(features, labels, weights)
        variables = [weight.variable for group in self._trainable for weight in group]
        gradients = tape.gradient(
            loss,
            [variable.value for variable in variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # Dense, as the master's updates are: a row without a gradient still has its momentum.
        self._file.optimizer.apply([tf.convert_to_tensor(g) for g in gradients], variables)
        return loss

    def _trace_read(self) -> list[tf.Tensor]:
        return [_flatten([w.variable.value for w in group.weights]) for group in self._arena.groups]

    def _trace_assign(self, precision: WirePrecision, flats: list[tf.Tensor]) -> None:
        for group, flat in zip(self._arena.groups, flats, strict=True):
            pieces = tf.split(flat, group.sizes)
            for weight, piece in zip(group.weights, pieces, strict=True):
                if flat.dtype != group.dtype:
                    piece = dequantize(piece, precision)
                weight.variable.value.assign(tf.reshape(piece, weight.shape))


def _flatten(tensors: Sequence[Any]) -> tf.Tensor:
    """Tensors as one; sparse gradients of embeddings become dense here."""
    return tf.concat([tf.reshape(tf.convert_to_tensor(t), [-1]) for t in tensors], 0)


def _memory(tensors: Sequence[Any]) -> tuple[memoryview, ...]:
    """The memory of eager tensors, copied only from a device that has its own."""
    return tuple(
        memoryview(tensor if "CPU" in tensor.backing_device else tensor.numpy()).cast("B")
        for tensor in tensors
    )


def _modified(graph: Any, weights: Sequence[Weight]) -> set[str]:
    """Names of the weights that the operations traced so far may modify."""
    handles = {graph.capture(w.variable.value.handle).name: w.name for w in weights}
    found = set()
    for operation in graph.get_operations():
        if operation.type in _READS:
            continue
        for tensor in operation.inputs:
            if tensor.dtype == tf.resource and tensor.name in handles:
                found.add(handles[tensor.name])
    return found
