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
from edl_worker.engines.tensorflow.embedding.row_gather import sort_positions
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.engines.tensorflow.model import ModelFile

log = logging.getLogger(__name__)

_NO_LIMIT = 0
"""In the place of a number of ids: any int64 is an id."""


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
        self._row_limits = np.array(
            [
                t.owner.layer.input_dim if isinstance(t.owner, ServedKerasEmbedding) else _NO_LIMIT
                for t in self.tables
            ],
            np.int64,
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
        ids, counts = found.ids.numpy(), found.counts.numpy()
        groups = found.order.groups
        numbers = [number for group in groups for number in group]
        self._check_ids(ids, counts, numbers)
        nbytes = 4 * int(counts @ self._dims[numbers])
        if 8 * ids.size + nbytes > MAX_ROW_BYTES:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"one minibatch needs {(8 * ids.size + nbytes) / 2**20:.0f} MiB of embedding rows, "
                f"more than the {MAX_ROW_BYTES >> 20} MiB that one exchange may have",
                where="--minibatch-size",
                remedy="Make minibatches smaller.",
            )
        ends = np.cumsum([len(group) for group in groups])
        row_counts = np.array([part.sum() for part in np.split(counts, ends[:-1])], np.int32)
        positions = [
            sort_positions(at.numpy(), rows)
            for at, rows in zip(found.positions, row_counts.tolist(), strict=True)
        ]
        return RowRequest(
            tuple(map(TableRows, numbers, counts.tolist())),
            ids,
            nbytes,
            Lookups(found.order, LookupTensors(row_counts, found.sizes, tuple(positions))),
        )

    def _check_ids(self, ids: IdArray, counts: Any, numbers: list[int]) -> None:
        """Refuse ids that a Keras layer has no rows for. Raises: ValueError: there are some."""
        limits = self._row_limits[numbers]
        if (limits == _NO_LIMIT).all():
            return
        limit = np.repeat(limits, counts)
        outside = ((ids < 0) | (ids >= limit)) & (limit != _NO_LIMIT)
        if outside.any():
            table = np.repeat(numbers, counts)[outside][0]
            raise ValueError(
                f"layer {self.tables[table].owner.layer.name}: id {ids[outside][0]} is not in "
                f"[0, {self._row_limits[table]})"
            )

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
