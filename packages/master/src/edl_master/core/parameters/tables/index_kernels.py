"""The loops over ids, compiled by numba: the index, merged gradients, and admission.

The index of ids lies in *buckets*: keys (int64), then the rows that they lead to (int32; -1: the
place is empty), with linear probing. Loops are given the addresses of buckets, since their sizes
change.

Importing this module loads numba; ``arithmetic.kernel`` does so when it is first needed.
"""

# numba's own types have no annotations, and what it compiles is not plain Python.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return, misc, assignment"
from __future__ import annotations

import numpy as np
from numba import carray

from edl_master.core.parameters.kernels import compile_lazily
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.tables.index import BUCKET_BITS
from edl_master.core.parameters.tables.kernel_primitives import GOLDEN, int32_at, int64_at, mix

_BUCKET_SHIFT = np.uint64(64 - BUCKET_BITS)

# --- the index -----------------------------------------------------------------------------


@compile_lazily
def find(
    ids: Array, bounds: Array, buckets: Array, masks: Array, rows: Array, missing: Array
) -> None:
    """``rows[i]`` becomes the row of ``ids[i]``, or -1.

    The ids from ``bounds[t]`` to ``bounds[t + 1]`` are of table ``t``. ``missing[t]`` becomes how
    many of them have no row; ``buckets`` and ``masks`` are addresses of what each index has.
    """
    for t in range(buckets.size):
        missing[t] = 0
        addresses = carray(int64_at(buckets[t]), 1 << BUCKET_BITS)
        mask_of = carray(int64_at(masks[t]), 1 << BUCKET_BITS)
        for i in range(bounds[t], bounds[t + 1]):
            h = mix(ids[i])
            bucket = h >> _BUCKET_SHIFT
            mask = mask_of[bucket]
            keys = carray(int64_at(addresses[bucket]), mask + 1)
            places = carray(int32_at(addresses[bucket] + 8 * (mask + 1)), mask + 1)
            at = np.int64(h) & mask
            while places[at] >= 0 and keys[at] != ids[i]:
                at = (at + 1) & mask
            rows[i] = places[at]
            if places[at] < 0:
                missing[t] += 1


@compile_lazily
def count_missing(ids: Array, rows: Array, needed: Array) -> None:
    """Add to ``needed``, by bucket, the ids whose row is -1."""
    for i in range(ids.size):
        if rows[i] == -1:
            needed[mix(ids[i]) >> _BUCKET_SHIFT] += 1


@compile_lazily
def insert(
    ids: Array, rows: Array, fresh: Array, buckets: Array, masks: Array, counts: Array
) -> int:
    """Give each id whose row is -1 the next of ``fresh``; return how many were used.

    The buckets have room for all of them. A repeated id gets one row.
    """
    used = 0
    for i in range(ids.size):
        if rows[i] != -1:
            continue
        h = mix(ids[i])
        bucket = h >> _BUCKET_SHIFT
        mask = masks[bucket]
        keys = carray(int64_at(buckets[bucket]), mask + 1)
        places = carray(int32_at(buckets[bucket] + 8 * (mask + 1)), mask + 1)
        at = np.int64(h) & mask
        while places[at] >= 0 and keys[at] != ids[i]:
            at = (at + 1) & mask
        if places[at] < 0:
            keys[at] = ids[i]
            places[at] = fresh[used]
            counts[bucket] += 1
            used += 1
        rows[i] = places[at]
    return used


@compile_lazily
def move_bucket(old: int, old_mask: int, new: int, new_mask: int) -> None:
    """Copy the entries of a bucket into a larger one."""
    old_keys = carray(int64_at(old), old_mask + 1)
    old_places = carray(int32_at(old + 8 * (old_mask + 1)), old_mask + 1)
    keys = carray(int64_at(new), new_mask + 1)
    places = carray(int32_at(new + 8 * (new_mask + 1)), new_mask + 1)
    for i in range(new_mask + 1):
        places[i] = -1
    for i in range(old_mask + 1):
        if old_places[i] < 0:
            continue
        at = np.int64(mix(old_keys[i])) & new_mask
        while places[at] >= 0:
            at = (at + 1) & new_mask
        keys[at] = old_keys[i]
        places[at] = old_places[i]


@compile_lazily
def remove(ids: Array, buckets: Array, masks: Array, counts: Array) -> None:
    """Forget ids that are there, closing the gaps that they leave."""
    for i in range(ids.size):
        h = mix(ids[i])
        bucket = h >> _BUCKET_SHIFT
        mask = masks[bucket]
        keys = carray(int64_at(buckets[bucket]), mask + 1)
        places = carray(int32_at(buckets[bucket] + 8 * (mask + 1)), mask + 1)
        gap = np.int64(h) & mask
        while places[gap] >= 0 and keys[gap] != ids[i]:
            gap = (gap + 1) & mask
        if places[gap] < 0:
            continue
        counts[bucket] -= 1
        at = gap
        while True:
            places[gap] = -1
            while True:
                at = (at + 1) & mask
                if places[at] < 0:
                    break
                home = np.int64(mix(keys[at])) & mask
                # It may move into the gap unless its first place lies behind the gap.
                if ((at - home) & mask) >= ((at - gap) & mask):
                    break
            if places[at] < 0:
                break
            keys[gap] = keys[at]
            places[gap] = places[at]
            gap = at


# --- gradients -----------------------------------------------------------------------------


@compile_lazily
def merge(ids: Array, gradients: Array, out_ids: Array, out: Array, places: Array) -> int:
    """Add the gradients of equal ids, in their order; return how many ids there are.

    ``places`` is all -1, its size a power of two and larger than the number of ids.
    """
    mask = places.size - 1
    found = 0
    for i in range(ids.size):
        at = np.int64(mix(ids[i])) & mask
        while places[at] >= 0 and out_ids[places[at]] != ids[i]:
            at = (at + 1) & mask
        if places[at] < 0:
            places[at] = found
            out_ids[found] = ids[i]
            for j in range(out.shape[1]):
                out[found, j] = gradients[i, j]
            found += 1
        else:
            for j in range(out.shape[1]):
                out[places[at], j] += gradients[i, j]
    return found


@compile_lazily
def first_repeated(ids: Array, bounds: Array, places: Array) -> int:
    """Return the first table in which an id appears more than once, or -1.

    ``bounds`` is as in ``find``; ``places`` (int32) has more than twice as many elements as any
    table has ids, a power of two.
    """
    for t in range(bounds.size - 1):
        size = 1
        while size <= 2 * (bounds[t + 1] - bounds[t]):
            size *= 2
        places[:size] = -1
        for i in range(bounds[t], bounds[t + 1]):
            at = np.int64(mix(ids[i])) & (size - 1)
            while places[at] >= 0:
                if ids[places[at]] == ids[i]:
                    return t
                at = (at + 1) & (size - 1)
            places[at] = i
    return -1


@compile_lazily
def admit(ids: Array, rows: Array, counters: Array, min_count: int) -> int:
    """Count ids without a row; ``rows[i]`` becomes -2 where this was not the last one needed.

    ``counters`` (uint8, four lines of a power of two) is a count-min sketch with conservative
    update: it never counts too little. Returns how many counts were added.
    """
    mask = np.uint64(counters.shape[1] - 1)
    added = 0
    at = np.empty(4, np.int64)
    for i in range(ids.size):
        if rows[i] != -1:
            continue
        h = mix(ids[i])
        least = 255
        for line in range(4):
            h = mix(h + GOLDEN)
            at[line] = np.int64(h & mask)
            least = min(least, np.int64(counters[line, at[line]]))
        least = min(least + 1, 255)
        for line in range(4):
            if counters[line, at[line]] < least:
                counters[line, at[line]] = least
        added += 1
        if least < min_count:
            rows[i] = -2
    return added
