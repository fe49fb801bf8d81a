"""The embedding tables of a job's model: which ids a minibatch needs, and its rows."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
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
from edl_worker.core.model_description import TableDescription
from edl_worker.core.step_engine import IdArray, RowArray, RowRequest, Scan
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
from edl_worker.engines.tensorflow.embedding.row_gather import sort_positions
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.engines.tensorflow.model import ModelFile

log = logging.getLogger(__name__)


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
        self._collect = IdCollector(file)
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
        self._numbers = {id(table.owner): number for number, table in enumerate(self.tables)}
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

    def initial_rows_of(self, wanted: RowRequest) -> list[tf.Tensor]:
        """Return the rows that a minibatch needs, as before training: (ids, dim) for each table."""
        found = []
        for table, ids in zip(self.tables, wanted.ids, strict=True):
            if isinstance(table.owner, ServedKerasEmbedding):
                found.append(tf.gather(table.owner.variable.value, ids))
            else:
                seed = tf.constant(table.seed, tf.int64)
                found.append(initial_rows(table.initial, tf.constant(ids), table.dim, seed))
        return found

    # --- minibatches -----------------------------------------------------------------------

    def find_rows(self, batch: Batch, *, training: bool) -> RowRequest:
        """Return the rows that a minibatch needs.

        Raises:
            EdlError: they cannot be known before the model runs, or are too many.
            ValueError: an id is none of the layer's.
        """
        numbers, unique, at = self._collect(batch, self._numbers, training=training)
        ids = [np.empty(0, np.int64)] * len(self.tables)
        for number, found in zip(dict.fromkeys(sorted(numbers)), unique, strict=True):
            ids[number] = found.numpy()
        nbytes = 0
        for table, found in zip(self.tables, ids, strict=True):
            if isinstance(table.owner, ServedKerasEmbedding):
                table.owner.check(found)
            nbytes += found.size * (8 + 4 * table.dim)
        if nbytes > MAX_ROW_BYTES:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"one minibatch needs {nbytes / 2**20:.0f} MiB of embedding rows, "
                f"more than the {MAX_ROW_BYTES >> 20} MiB that one exchange may have",
                where="--minibatch-size",
                remedy="Make minibatches smaller.",
            )
        places = [
            sort_positions(part.numpy(), ids[number].size) if alone else part
            for number, part, alone in zip(numbers, at, _sole_lookups(numbers), strict=True)
        ]
        return RowRequest(tuple(ids), tuple(numbers), tuple(map(tf.convert_to_tensor, places)))

    def specs(self, wanted: RowRequest) -> tuple[Any, Any]:
        """Return the specifications of rows and positions for any minibatch with such lookups."""
        rows = [tf.TensorSpec([None, table.dim], tf.float32) for table in self.tables]
        return rows, [tf.TensorSpec([None], tf.int32) for _ in wanted.at]

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

    def serving(self, wanted_tables: Sequence[int], rows: Any, at: Any) -> lookup_stages.ServeRows:
        """Return a context in which a step computes with rows."""
        own = [rows[number] for number in wanted_tables]
        return lookup_stages.ServeRows(own, at, _sole_lookups(wanted_tables))

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


def _sole_lookups(tables: Sequence[int]) -> list[bool]:
    """Return for each lookup, given as its table's number, whether its table has no other."""
    return [tables.count(number) == 1 for number in tables]


def _unique_paths(model: keras.Model) -> list[str]:
    return variable_names.unique([variable.path for variable in model.weights])


def _seed_of(seed: int, name: str) -> int:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
