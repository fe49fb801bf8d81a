"""The lookups of a model: which tables they use, and how they find their rows among all.

All tables of equal width are one matrix in a step, so that their number does not make it slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from edl_worker.engines.tensorflow.embedding.row_gather import gather_rows


@dataclass(frozen=True, slots=True)
class LookupOrder:
    """The lookups of a model and the tables that they use, those of equal width together.

    Attributes:
        lookups: for each lookup the number of its table.
        groups: numbers of the tables of each width; rows are requested in this order.
    """

    lookups: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, lookups: Sequence[int], dims: Sequence[int]) -> LookupOrder:
        """Return the order for lookups of tables, of which table ``n`` has width ``dims[n]``."""
        used = sorted(set(lookups))
        widths = sorted({dims[number] for number in used})
        groups = (tuple(n for n in used if dims[n] == width) for width in widths)
        return cls(tuple(lookups), tuple(groups))

    def lookups_of(self, group: int) -> list[int]:
        """Return the positions of the lookups that use tables of a group, table by table."""
        return [i for table in self.groups[group] for i, n in enumerate(self.lookups) if n == table]


class LookupTensors(NamedTuple):
    """The tensors by which a step finds the rows of each lookup.

    Attributes:
        row_counts: int32, how many rows each group has.
        sizes: int32, how many ids each lookup has.
        places: for each group the ``DistinctIds.places`` of the ids of its lookups, one lookup
            after the other.
    """

    row_counts: tf.Tensor
    sizes: tf.Tensor
    places: tuple[tf.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups of one minibatch."""

    order: LookupOrder
    tensors: LookupTensors


def rows_of_lookups(
    order: LookupOrder, widths: Sequence[int], rows: tf.Tensor, tensors: LookupTensors
) -> list[tf.Tensor]:
    """Return the rows of each lookup, of shape (ids, width).

    Args:
        order: of the lookups.
        widths: numbers of a row, by group.
        rows: float32 of shape (n,), the rows of all groups.
        tensors: of the minibatch.
    """
    parts = [rows]
    if len(widths) > 1:
        parts = tf.split(rows, tensors.row_counts * tf.constant(widths), num=len(widths))
    found: dict[int, tf.Tensor] = {}
    for group, (part, width) in enumerate(zip(parts, widths, strict=True)):
        lookups = order.lookups_of(group)
        gathered = gather_rows(tf.reshape(part, [-1, width]), tensors.places[group])
        sizes = tf.gather(tensors.sizes, lookups)
        found.update(zip(lookups, tf.split(gathered, sizes, num=len(lookups)), strict=True))
    return [found[i] for i in range(len(order.lookups))]
