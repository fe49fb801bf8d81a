"""The embedding tables of a job's model: which ids a minibatch needs, and its rows."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport.parameters import MAX_ROW_BYTES
from edl_worker.core import variable_names
from edl_worker.core.batch import Batch
from edl_worker.core.exchange import TableRows
from edl_worker.core.model_description import TableDescription
from edl_worker.core.row_engine import IdArray, RowArray, RowRequest, Scan
from edl_worker.engines.tensorflow.embedding import lookup_stages
from edl_worker.engines.tensorflow.embedding.distinct_ids import find_distinct
from edl_worker.engines.tensorflow.embedding.id_collector import IdCollector
from edl_worker.engines.tensorflow.embedding.initial_rows import (
    CONSTANT,
    RowInitializer,
    initial_rows,
)
from edl_worker.engines.tensorflow.embedding.keras_embedding import (
    ServedKerasEmbedding,
    large_embeddings,
)
from edl_worker.engines.tensorflow.embedding.layer import Embedding
from edl_worker.engines.tensorflow.embedding.lookups import (
    LookupOrder,
    Lookups,
    LookupTensors,
    rows_of_lookups,
)
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.engines.tensorflow.model import ModelFile

log = logging.getLogger(__name__)

_ANY_ID = (1 << 64) - 1
"""In the place of the last id of a table: any int64 is an id."""


@dataclass(frozen=True, slots=True)
class EmbeddingTable:
    """One table of the model; ``owner`` is the layer that looks up its rows."""

    name: str
    owner: Embedding | ServedKerasEmbedding
    dim: int
    seed: int
    initial: RowInitializer
    min_count: int = 1
    max_age: int = 0


class EmbeddingTables:
    """All tables of a model, in the order in which the master numbers them."""

    def __init__(self, file: ModelFile, seed: int, threshold: int) -> None:
        """Find the tables of a model that has been built.

        Args:
            file: the model file.
            seed: of the job.
            threshold: Keras Embedding layers of at least so many numbers become tables too.
        """
        model = file.model
        layers = [
            layer
            for layer in nested_layers(model)
            if isinstance(layer, Embedding) and layer.is_served and layer.trainable
        ]
        large_layers = large_embeddings(model, threshold)
        paths = {id(v): n for v, n in zip(model.weights, _unique_paths(model), strict=True)}
        self.tables = tuple(
            [
                EmbeddingTable(
                    name,
                    layer,
                    layer.output_dim,
                    _seed_of(seed, name),
                    layer.initial,
                    layer.min_count,
                    layer.max_age,
                )
                for layer, name in zip(
                    layers, variable_names.unique([layer.name for layer in layers]), strict=True
                )
            ]
            + [
                EmbeddingTable(
                    paths[id(one.variable)],
                    one,
                    one.dim,
                    _seed_of(seed, paths[id(one.variable)]),
                    RowInitializer(CONSTANT, 0.0, 0.0),
                )
                for one in large_layers
            ]
        )
        numbers = {id(table.owner): number for number, table in enumerate(self.tables)}
        self._dims = np.array([table.dim for table in self.tables], np.int64)
        self._collect = IdCollector(file, numbers, self._dims.tolist())
        self._last_ids = np.array(
            [
                t.owner.layer.input_dim - 1
                if isinstance(t.owner, ServedKerasEmbedding)
                else _ANY_ID
                for t in self.tables
            ],
            np.uint64,
        )
        for table in self.tables:
            if isinstance(table.owner, ServedKerasEmbedding):
                table.owner.redirect_lookups()
                log.info("layer %s is served row by row, as an embedding table", table.name)
            else:
                table.owner.seed = table.seed

    @property
    def table_variables(self) -> tuple[Any, ...]:
        """The variables of Keras layers that are served as tables; they are no dense weights."""
        return tuple(
            t.owner.variable for t in self.tables if isinstance(t.owner, ServedKerasEmbedding)
        )

    def describe(self) -> list[TableDescription]:
        """Return the tables for ``ModelDescription.tables``."""
        return [
            TableDescription(
                name=table.name,
                dim=table.dim,
                distribution=table.initial.distribution,
                center=table.initial.center,
                spread=table.initial.spread,
                seed=table.seed,
                min_count=table.min_count,
                max_age=table.max_age,
            )
            for table in self.tables
        ]

    def initial_rows(self) -> Iterator[tuple[int, IdArray, RowArray]]:
        """Yield initial rows that the initializer does not give: table, ids (n,), rows (n, dim)."""
        for number, table in enumerate(self.tables):
            if isinstance(table.owner, ServedKerasEmbedding):
                values = table.owner.variable.numpy()
                yield number, np.arange(len(values), dtype=np.int64), values
            elif table.owner.initial_table is not None:
                yield number, *table.owner.initial_table

    def initial_rows_of(self, wanted: RowRequest) -> tf.Tensor:
        """Return the rows that a minibatch needs, as before training; float32 of shape (n,)."""
        found = [tf.zeros([0])]
        for number, ids in wanted.ids_by_table():
            table = self.tables[number]
            if isinstance(table.owner, ServedKerasEmbedding):
                found.append(tf.gather(table.owner.variable.value, ids))
            else:
                seed = tf.constant(table.seed, tf.int64)
                found.append(initial_rows(table.initial, tf.constant(ids), table.dim, seed))
        return tf.concat([tf.reshape(rows, [-1]) for rows in found], 0)

    # --- minibatches -----------------------------------------------------------------------

    def find_rows(self, batch: Batch, *, training: bool) -> RowRequest:
        """Return the rows that a minibatch needs.

        Raises:
            EdlError: they cannot be known before the model runs, or are too many.
            ValueError: an id is none of the layer's.
        """
        found = self._collect(batch, training=training)
        order, sizes = found.order, found.sizes.numpy()
        numbers = [number for group in order.groups for number in group]
        all_sizes = np.bincount(order.lookups, sizes, len(self.tables)).astype(np.int64)
        all_ids = self._place_ids(found.ids.numpy(), all_sizes, numbers)
        ids: list[IdArray] = []
        counts: list[int] = []
        places: list[tf.Tensor] = []
        start = 0
        for group in order.groups:
            of_tables = all_sizes[list(group)].tolist()
            stop = start + sum(of_tables)
            distinct = find_distinct(all_ids[start:stop], of_tables)
            ids.append(distinct.ids)
            counts += distinct.counts
            places.append(tf.convert_to_tensor(distinct.places))
            start = stop
        nbytes = 4 * int(np.dot(counts, self._dims[numbers]))
        id_bytes = sum(part.nbytes for part in ids)
        if id_bytes + nbytes > MAX_ROW_BYTES:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"one minibatch needs {(id_bytes + nbytes) / 2**20:.0f} MiB of embedding rows, "
                f"more than the {MAX_ROW_BYTES >> 20} MiB that one exchange may have",
                where="--minibatch-size",
                remedy="Make minibatches smaller.",
            )
        row_counts = tf.constant([part.size for part in ids], tf.int32)
        return RowRequest(
            tuple(map(TableRows, numbers, counts)),
            np.concatenate([np.empty(0, np.int64), *ids]),
            nbytes,
            Lookups(order, LookupTensors(row_counts, found.sizes, tuple(places))),
        )

    def _place_ids(self, ids: IdArray, sizes: IdArray, numbers: list[int]) -> IdArray:
        """Return ids as their tables have them: a Keras layer counts negative ones from its end.

        Raises:
            ValueError: a Keras layer has no row for an id.
        """
        last = np.repeat(self._last_ids[numbers], sizes[numbers])
        outside = ids.view(np.uint64) > last  # so are negative ones
        if not outside.any():
            return ids
        placed = np.where(outside & (ids < 0), ids + last.view(np.int64) + 1, ids)
        outside = placed.view(np.uint64) > last
        if outside.any():
            table = np.repeat(numbers, sizes[numbers])[outside][0]
            raise ValueError(
                f"layer {self.tables[table].owner.layer.name}: id {placed[outside][0]} is not in "
                f"[0, {int(self._last_ids[table]) + 1})"
            )
        return placed

    def check_step(self, graph: Any) -> None:
        """Check that a traced step does not read the variable of a table directly.

        Raises:
            EdlError: the model uses the weights of an embedding other than by lookup.
        """
        handles = {graph.capture(v.value.handle).name: v.path for v in self.table_variables}
        for operation in graph.get_operations():
            for tensor in operation.inputs:
                if tensor.dtype == tf.resource and tensor.name in handles:
                    raise EdlError(
                        ErrorCode.MODEL_CONTRACT,
                        f"variable {handles[tensor.name]} is a large embedding that the model "
                        "uses for more than looking up rows",
                        where=f"variable {handles[tensor.name]}",
                        remedy="Set --embedding-threshold 0: workers then exchange all of it.",
                    )

    def serve(
        self, order: LookupOrder, rows: tf.Tensor, tensors: LookupTensors
    ) -> lookup_stages.ServeRows:
        """Return a context in which a step computes with rows.

        Args:
            order: of the lookups.
            rows: float32 of shape (n,), as requested.
            tensors: of the ``RowRequest``.
        """
        widths = [int(self._dims[group[0]]) for group in order.groups]
        return lookup_stages.ServeRows(rows_of_lookups(order, widths, rows, tensors))

    # --- the trained model -----------------------------------------------------------------

    @contextmanager
    def stored_rows(self, scan: Scan) -> Iterator[None]:
        """Store all rows in the layers while the context lasts: the model then needs no master."""
        for number, table in enumerate(self.tables):
            ids, rows = scan(number)
            if isinstance(table.owner, ServedKerasEmbedding):
                values = table.owner.variable.numpy()
                values[ids] = rows
                table.owner.variable.assign(values)
                table.owner.restore_lookups()
            else:
                table.owner.store_rows(ids, rows, table.seed)
        try:
            yield
        finally:
            for table in self.tables:
                if isinstance(table.owner, ServedKerasEmbedding):
                    table.owner.redirect_lookups()
                else:
                    table.owner.clear_rows()


def _unique_paths(model: keras.Model) -> list[str]:
    return variable_names.unique([variable.path for variable in model.weights])


def _seed_of(seed: int, name: str) -> int:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
