"""The stages of lookups while a model is traced: collecting ids, or taking rows.

A step on a model with tables has two parts. The first runs what makes ids of features, and
nothing else; the rows of these ids are fetched; the second computes with them. Both are traces of
the same model, so the lookups of both come in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

import tensorflow as tf


class LookupStage(Protocol):
    """The way in which lookups find rows at present."""

    def lookup(self, table: object, ids: tf.Tensor, dim: int) -> tf.Tensor:
        """Return rows of shape ``ids.shape + (dim,)`` for int64 ids of any shape."""
        ...


class UnservedLookupError(Exception):
    """Ids of a lookup cannot be known before the model runs."""


_now = threading.local()


def current() -> LookupStage | None:
    """Return the stage that this thread is in; None outside of a traced step."""
    stage: LookupStage | None = getattr(_now, "stage", None)
    return stage


@contextmanager
def in_stage(stage: LookupStage | None) -> Iterator[None]:
    """Direct the lookups of this thread to a stage while the context lasts."""
    before = current()
    _now.stage = stage
    try:
        yield
    finally:
        _now.stage = before


_serving = threading.local()


class LayerPurpose(Enum):
    """The purpose of layers built for a job; they create no rows of their own."""

    TRAINING = auto()
    """Rows are the parameter plane's; those of a trained model are what it begins with."""
    ANSWERING = auto()
    """Rows are those of a trained model."""


def layer_purpose() -> LayerPurpose | None:
    """Return the purpose for which layers are being built; None outside of jobs."""
    now: LayerPurpose | None = getattr(_serving, "purpose", None)
    return now


@contextmanager
def layers_for(what: LayerPurpose) -> Iterator[None]:
    """Build layers for a job while the context lasts."""
    before = layer_purpose()
    _serving.purpose = what
    try:
        yield
    finally:
        _serving.purpose = before


@dataclass(slots=True)
class CollectIds:
    """The stage that collects the ids of lookups; rows are zeros that nothing may depend on.

    Attributes:
        graph: that is being traced.
        tables: of each lookup.
        ids: of each lookup, flat.
        zeros: names of the operations that gave rows.
    """

    graph: tf.Graph
    tables: list[object] = field(default_factory=list)
    ids: list[tf.Tensor] = field(default_factory=list)
    zeros: set[str] = field(default_factory=set)

    def lookup(self, table: object, ids: tf.Tensor, dim: int) -> tf.Tensor:
        flat = tf.reshape(ids, [-1])
        if flat.graph is not self.graph:
            raise UnservedLookupError(
                "an embedding is looked up inside a loop or a branch (tf.while_loop, tf.cond, "
                "tf.map_fn): its ids are not known before the step"
            )
        rows = tf.fill(tf.concat([tf.shape(ids), [dim]], 0), 0.0)
        rows.set_shape([*ids.shape, dim])
        self.tables.append(table)
        self.ids.append(flat)
        self.zeros.add(rows.op.name)
        return rows

    def check(self) -> None:
        """Make sure that no ids were computed from rows. Raises: UnservedLookupError: some were."""
        seen: set[str] = set()
        waiting = [tensor.op for tensor in self.ids]
        while waiting:
            operation = waiting.pop()
            if operation.name in seen:
                continue
            seen.add(operation.name)
            if operation.name in self.zeros:
                raise UnservedLookupError(
                    "the ids of one embedding are computed from the rows of another"
                )
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)


class ServeRows:
    """The stage that gives each lookup its rows, in the order in which ids were collected."""

    def __init__(self, rows: Sequence[tf.Tensor]) -> None:
        """Note the rows of each lookup, of shape (ids, dim)."""
        self._rows = rows
        self._done = 0

    def lookup(self, table: object, ids: tf.Tensor, dim: int) -> tf.Tensor:
        rows = self._rows[self._done]
        self._done += 1
        shape = [*ids.shape, dim] if ids.shape.rank is not None else [None]
        if shape.count(None) <= 1 and ids.shape.rank is not None:
            return tf.reshape(rows, [-1 if size is None else size for size in shape])
        rows = tf.reshape(rows, tf.concat([tf.shape(ids), [dim]], 0))
        rows.set_shape([*ids.shape, dim])
        return rows
