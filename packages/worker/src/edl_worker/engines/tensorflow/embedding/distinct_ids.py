"""Finds the distinct ids of a minibatch's lookups, and where each id of a lookup is among them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edl_worker.core.row_engine import IdArray

_WORD_BITS = 64


class DistinctIds(NamedTuple):
    """The distinct ids of some tables, table by table.

    Attributes:
        ids: int64, in each table ascending.
        counts: how many ids each table has.
        places: int32 of shape (3 n,) for n ids in lookups: where each is among the distinct ones,
            the order that sorts these places, and the places in this order.
    """

    ids: IdArray
    counts: list[int]
    places: npt.NDArray[np.int32]


def find_distinct(ids: IdArray, sizes: Sequence[int]) -> DistinctIds:
    """Return the distinct ids of some tables.

    Args:
        ids: of all lookups, table by table.
        sizes: how many of them belong to each table.
    """
    used = [number for number, size in enumerate(sizes) if size]
    if not used:
        return DistinctIds(ids, [0] * len(sizes), np.empty(0, np.int32))
    parts = np.array([sizes[number] for number in used])
    starts = np.cumsum(parts) - parts
    lows = np.minimum.reduceat(ids, starts).tolist()
    highs = np.maximum.reduceat(ids, starts).tolist()
    # Each id gets a number: those of a table follow those of the table before.
    ends = list(accumulate(high - low + 1 for low, high in zip(lows, highs, strict=True)))
    shifts = [end - 1 - high for end, high in zip(ends, highs, strict=True)]
    bits = ids.size.bit_length()
    if ends[-1] >> (_WORD_BITS - bits):
        distinct, found, places = _sort_wide(ids, parts.tolist())
    else:
        modulus = 1 << _WORD_BITS
        shift = np.array([each % modulus for each in shifts], np.uint64)
        numbers, places = _sort_numbers(ids.view(np.uint64) + np.repeat(shift, parts), bits)
        found = np.diff(np.searchsorted(numbers, np.array(ends, np.uint64)), prepend=0).tolist()
        distinct = (numbers - np.repeat(shift, found)).view(np.int64)
    counts = [0] * len(sizes)
    for number, count in zip(used, found, strict=True):
        counts[number] = count
    return DistinctIds(distinct, counts, places)


def _sort_numbers(
    numbers: npt.NDArray[np.uint64], bits: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Return distinct numbers and ``places``; where a number stands takes ``bits`` more bits.

    Words of number and place are sorted several times as fast as by ``argsort``.
    """
    n, width = numbers.size, np.uint64(bits)
    words = (numbers << width) | np.arange(n, dtype=np.uint64)
    words.sort()
    ascending = words >> width
    is_first = np.empty(n, np.bool_)
    is_first[0] = True
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    places = np.empty(3 * n, np.int32)
    at, order, at_sorted = places[:n], places[n : 2 * n], places[2 * n :]
    order[:] = words & np.uint64((1 << bits) - 1)
    np.cumsum(is_first, out=at_sorted)
    at_sorted -= 1
    at[order] = at_sorted
    return ascending[is_first], places


def _sort_wide(
    ids: IdArray, sizes: Sequence[int]
) -> tuple[IdArray, list[int], npt.NDArray[np.int32]]:
    """Return distinct ids, counts and ``places`` of ids that are too far apart to be numbered."""
    found, places, start = [], [], 0
    for part in np.split(ids, np.cumsum(sizes)[:-1]):
        distinct, at = np.unique(part, return_inverse=True)
        found.append(distinct)
        places.append(at + start)
        start += distinct.size
    at = np.concatenate(places, dtype=np.int32, casting="same_kind")
    # Numbers of 16 bits are sorted by radix, seven times as fast.
    order = np.argsort(at.astype(np.uint16) if start <= 1 << 16 else at, kind="stable")
    merged = np.concatenate([at, order, at[order]], dtype=np.int32, casting="same_kind")
    return np.concatenate(found), [part.size for part in found], merged
