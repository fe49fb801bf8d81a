"""The embedding layer for model files: ``from elasticdl.layers import Embedding``."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edl_worker.engines.tensorflow.embedding import lookup_stages
from edl_worker.engines.tensorflow.embedding.initial_rows import initial_rows, mix, row_initializer

COMBINERS = (None, "sum", "mean", "sqrtn")
IDS, ROWS, SEED = "table_ids", "table_rows", "table_seed"
"""Names of the weights of a layer that holds the rows that training has made."""

Array = npt.NDArray[Any]


@keras.saving.register_keras_serializable(package="elasticdl")
class Embedding(keras.layers.Layer):
    """Rows of ``output_dim`` numbers by id, for any int64 ids.

    In a job of edl the rows are kept by the parameter plane: a row is made by the first gradient
    for its id, only rows that a minibatch uses are sent, and there is no number of ids to be given
    beforehand. Without a job, in plain Keras, the layer has ``local_rows`` rows that ids share by
    their hash, trained as any weight: to try a model on a small data set. A trained model holds
    the rows of all ids that were trained, and needs no parameter server.

    Args:
        output_dim: numbers of a row.
        embeddings_initializer: zeros, ones, a constant, random_uniform, random_normal,
            truncated_normal, or a glorot, he or lecun initializer. In a job a new row depends on
            the job's seed, the table and the id alone; the initializer's own seed is not used.
        mask_zero: id 0 stands for no id: it is masked, and left out by a combiner.
        combiner: joins the rows of one example: "sum", "mean" or "sqrtn" (the sum divided by the
            square root of their number). Needed for sparse inputs. None: each id gives its row.
        input_dim: how many ids there will be, if that is known, for initializers that scale by
            it; without a job the layer then has so many rows, and ids are taken modulo it.
        min_count: an id is trained from its ``min_count``-th gradient on; until then it keeps
            its initial row.
        max_age: a row that no gradient has reached in the last ``max_age`` updates of the table
            is dropped; 0: none is.
        local_rows: rows without a job.

    Inputs: int64 or int32 tensors of any shape, ragged tensors, and with a combiner sparse ones.
    A call may give ``weights``, shaped like the ids, by which a combiner multiplies rows.

    Outputs: the shape of the ids with ``output_dim`` added; with a combiner the last dimension
    of the ids is gone: ``(batch, ids)`` becomes ``(batch, output_dim)``. An example without ids
    gives zeros.
    """

    def __init__(
        self,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        mask_zero: bool = False,
        combiner: str | None = None,
        *,
        input_dim: int | None = None,
        min_count: int = 1,
        max_age: int = 0,
        local_rows: int = 1 << 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if combiner not in COMBINERS:
            raise ValueError(f"combiner must be one of sum, mean, sqrtn or None, not {combiner!r}")
        for name, value, least in (
            ("output_dim", output_dim, 1),
            ("min_count", min_count, 1),
            ("max_age", max_age, 0),
            ("local_rows", local_rows, 1),
        ):
            if isinstance(value, bool) or int(value) != value or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value}")
        if min_count > 255:
            raise ValueError(f"min_count must be at most 255, not {min_count}")
        self.output_dim = int(output_dim)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.mask_zero = mask_zero
        self.combiner = combiner
        self.input_dim = input_dim
        self.min_count, self.max_age = int(min_count), int(max_age)
        self.local_rows = int(local_rows)
        self.supports_masking = True
        self.initial = row_initializer(self.embeddings_initializer, self.output_dim, input_dim)
        self.seed = 0
        self.initial_table: tuple[Array, Array] | None = None
        self._purpose: lookup_stages.LayerPurpose | None = None
        self._stored: tuple[Any, Any, Any] | None = None
        self._local: Any = None

    # --- Keras -----------------------------------------------------------------------------

    def build(self, input_shape: Any = None) -> None:
        del input_shape
        if self._stored is None and self._local is None:
            self._purpose = lookup_stages.layer_purpose()
            if self._purpose is None:
                self._local = self.add_weight(
                    shape=(self.input_dim or self.local_rows, self.output_dim),
                    initializer=self.embeddings_initializer,
                    name="embeddings",
                )
        self.built = True

    def call(self, inputs: Any, weights: Any = None) -> Any:
        """Return the rows of ids, combined if there is a combiner."""
        match inputs:
            case tf.RaggedTensor():
                return self._lookup_ragged(inputs, weights)
            case tf.SparseTensor():
                return self._sparse(inputs, weights)
        ids = tf.cast(inputs, tf.int64)
        rows = self._rows(ids)
        if self.combiner is None:
            return rows
        factors = tf.ones_like(ids, rows.dtype) if weights is None else tf.cast(weights, rows.dtype)
        if self.mask_zero:
            factors *= tf.cast(tf.not_equal(ids, 0), rows.dtype)
        total = tf.reduce_sum(rows * factors[..., None], axis=-2)
        return self._normalize(total, tf.reduce_sum(self._divisor_terms(factors), axis=-1))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if not self.mask_zero or self.combiner or isinstance(inputs, tf.SparseTensor):
            return None
        if isinstance(inputs, tf.RaggedTensor):
            return None
        return keras.ops.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape: Any, *_: Any) -> tuple[int | None, ...]:
        kept = input_shape[:-1] if self.combiner else input_shape
        return (*kept, self.output_dim)

    def compute_output_spec(self, inputs: Any, weights: Any = None) -> Any:
        shape = self.compute_output_shape(inputs.shape)
        ragged = bool(getattr(inputs, "ragged", False)) and not self.combiner
        extra = {"ragged": True} if ragged else {}
        return keras.KerasTensor(shape, dtype=self.compute_dtype, **extra)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
            "input_dim": self.input_dim,
            "min_count": self.min_count,
            "max_age": self.max_age,
            "local_rows": self.local_rows,
        }

    def get_build_config(self) -> dict[str, Any]:
        stored = self._stored
        return {"held": None if stored is None else int(stored[0].shape[0])}

    def build_from_config(self, config: dict[str, Any]) -> None:
        if config.get("held"):
            self._create_row_weights(config["held"])
        self.build()

    def load_own_variables(self, store: Any) -> None:
        values = [np.asarray(store[key]) for key in sorted(store.keys(), key=int)]
        if len(values) == len((IDS, ROWS, SEED)):
            self.load_rows(values[0], values[1], int(values[2]))
        elif self._local is not None:
            super().load_own_variables(store)
        else:
            raise ValueError(
                f"layer {self.name}: the file was saved outside a job, where several ids "
                "share a row; train the layer in a job, or start without the file"
            )

    # --- trained rows -----------------------------------------------------------------------

    def load_rows(self, ids: Array, rows: Array, seed: int) -> None:
        """Use rows as initial rows in a job that trains; otherwise store them in the layer.

        Args:
            ids: int64, sorted, each once.
            rows: float32 of shape (ids, output_dim).
            seed: of the table that they were trained in.
        """
        if self.is_served:
            self.initial_table = np.array(ids), np.array(rows)
        else:
            self.store_rows(ids, rows, seed)

    def store_rows(self, ids: Array, rows: Array, seed: int) -> None:
        """Store rows in the layer: lookups use them, and initial rows for all other ids."""
        if not ids.size:  # a search needs something to search in
            ids = np.zeros(1, np.int64)
            rows = initial_rows(
                self.initial, tf.constant(ids), self.output_dim, tf.constant(seed, tf.int64)
            ).numpy()
        if self._stored is None or self._stored[0].shape[0] != ids.size:
            self._create_row_weights(ids.size)
        assert self._stored is not None
        order = np.argsort(ids)
        for variable, value in zip(self._stored, (ids[order], rows[order], seed), strict=True):
            variable.assign(value)

    def clear_rows(self) -> None:
        """Remove the stored rows, so that lookups use the job's tables again."""
        if self._stored is not None:
            self._remove_weights(list(self._stored))
            self._stored = None

    @property
    def is_served(self) -> bool:
        """Whether lookups use a table of the job."""
        return self._purpose is lookup_stages.LayerPurpose.TRAINING and self._stored is None

    def _create_row_weights(self, n: int) -> None:
        self.clear_rows()
        if self._local is not None:
            self._remove_weights([self._local])
            self._local = None
        self._tracker.unlock()
        rows_shape = n, self.output_dim
        shapes = {IDS: ((n,), "int64"), ROWS: (rows_shape, "float32"), SEED: ((), "int64")}
        ids, rows, seed = (
            self.add_weight(
                shape=shape, dtype=dtype, initializer="zeros", trainable=False, name=name
            )
            for name, (shape, dtype) in shapes.items()
        )
        self._stored = ids, rows, seed
        if self.built:
            self._tracker.lock()

    def _remove_weights(self, variables: list[Any]) -> None:
        self._tracker.unlock()
        gone = {id(v) for v in variables}
        for kept in (self._trainable_variables, self._non_trainable_variables):
            for variable in [v for v in kept if id(v) in gone]:
                kept.remove(variable)

    # --- lookups ---------------------------------------------------------------------------

    def _rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Return rows of shape ``ids.shape + (output_dim,)``, in the layer's compute dtype."""
        stage = lookup_stages.current()
        if self.is_served and stage is not None:
            rows = stage.lookup(self, ids, self.output_dim)
        else:
            flat = tf.reshape(ids, [-1])
            rows = self._local_rows(flat) if self._local is not None else self._stored_rows(flat)
            rows = tf.reshape(rows, tf.concat([tf.shape(ids), [self.output_dim]], 0))
            rows.set_shape([*ids.shape, self.output_dim])
        return tf.cast(rows, self.compute_dtype)

    def _local_rows(self, ids: tf.Tensor) -> tf.Tensor:
        if self.input_dim:
            places = tf.math.floormod(ids, tf.cast(self.input_dim, tf.int64))
        else:
            hashed = tf.bitwise.right_shift(mix(tf.bitcast(ids, tf.uint64)), np.uint64(1))
            places = tf.math.floormod(tf.bitcast(hashed, tf.int64), self.local_rows)
        return tf.gather(self._local.value, places)

    def _stored_rows(self, ids: tf.Tensor) -> tf.Tensor:
        if self._stored is None:
            seed = tf.constant(self.seed, tf.int64)
            return initial_rows(self.initial, ids, self.output_dim, seed)
        known, rows, seed = (tf.convert_to_tensor(v.value) for v in self._stored)
        at = tf.minimum(tf.searchsorted(known, ids), tf.shape(known)[0] - 1)
        found = tf.equal(tf.gather(known, at), ids)
        made = initial_rows(self.initial, ids, self.output_dim, seed)
        return tf.where(found[:, None], tf.gather(rows, at), made)

    # --- combiners -------------------------------------------------------------------------

    def _lookup_ragged(self, inputs: tf.RaggedTensor, weights: Any) -> Any:
        ids = tf.cast(inputs, tf.int64)
        if self.combiner is None:
            return ids.with_flat_values(self._rows(ids.flat_values))
        inner = ids
        while isinstance(inner.values, tf.RaggedTensor):
            inner = inner.values
        flat_weights = weights.flat_values if isinstance(weights, tf.RaggedTensor) else weights
        joined = self._combine(inner.values, inner.value_rowids(), inner.nrows(), flat_weights)
        if ids.ragged_rank == 1:
            joined.set_shape([inputs.shape[0], self.output_dim])
            return joined
        return _with_innermost(ids, joined)

    def _sparse(self, inputs: tf.SparseTensor, weights: Any) -> tf.Tensor:
        if self.combiner is None:
            raise ValueError(f"layer {self.name}: sparse inputs need a combiner")
        flat_weights = weights.values if isinstance(weights, tf.SparseTensor) else weights
        joined = self._combine(
            tf.cast(inputs.values, tf.int64),
            inputs.indices[:, 0],
            inputs.dense_shape[0],
            flat_weights,
        )
        joined.set_shape([inputs.shape[0], self.output_dim])
        return joined

    def _combine(
        self, ids: tf.Tensor, examples: tf.Tensor, n: tf.Tensor, weights: Any
    ) -> tf.Tensor:
        """Return the rows of each example combined: shape (n, output_dim)."""
        rows = self._rows(ids)
        factors = tf.ones_like(ids, rows.dtype) if weights is None else tf.cast(weights, rows.dtype)
        if self.mask_zero:
            factors *= tf.cast(tf.not_equal(ids, 0), rows.dtype)
        total = tf.math.unsorted_segment_sum(rows * factors[:, None], examples, n)
        counted = tf.math.unsorted_segment_sum(self._divisor_terms(factors), examples, n)
        return self._normalize(total, counted)

    def _divisor_terms(self, factors: tf.Tensor) -> tf.Tensor:
        """Return what each id adds to the divisor of its example's sum."""
        return tf.square(factors) if self.combiner == "sqrtn" else factors

    def _normalize(self, total: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
        if self.combiner == "sum":
            return total
        by = tf.sqrt(counted) if self.combiner == "sqrtn" else counted
        return tf.math.divide_no_nan(total, by[..., None])


def _with_innermost(ragged: tf.RaggedTensor, rows: tf.Tensor) -> Any:
    """Return a ragged tensor whose innermost ragged dimension has been replaced by rows."""
    if not isinstance(ragged.values, tf.RaggedTensor):
        return rows
    return ragged.with_values(_with_innermost(ragged.values, rows))
