"""The inner loops of embedding tables, compiled by numba.

Rows lie in *blocks*: one piece of memory each, of ``2^shift`` rows of ``width`` float32 numbers,
then the ids of these rows (int64), then when each was last used (uint32; 0: the row is free).
The index of ids lies in *buckets*: keys (int64), then the rows that they lead to (int32; -1: the
place is empty), with linear probing. Loops are given the addresses of blocks and buckets, since
their number grows.

Importing this module loads numba; ``arithmetic.kernel`` does so when it is first needed.
"""

# numba's own types have no annotations, and what it compiles is not plain Python.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return, misc, assignment"
from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from edl_master.core.parameters.kernels import compiled
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.tables.store import CLOCK

BUCKET_BITS = 10
"""Of a hashed id, the highest ones: its virtual bucket."""

_BUCKET_SHIFT = np.uint64(64 - BUCKET_BITS)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / (1 << 53)
_CUT = 0.9544997361036416  # of the standard normal distribution lies between -2 and 2


def _pointer(of: Any) -> Any:
    @intrinsic
    def pointer(typing_context, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(of)(address), generate

    return pointer


_float32_at = _pointer(types.float32)
_int64_at = _pointer(types.int64)
_int32_at = _pointer(types.int32)
_uint32_at = _pointer(types.uint32)


@compiled
def mix(x):
    """Spread 64 bits over 64 bits, one to one: the last steps of SplitMix64 (Steele 2014)."""
    z = np.uint64(x)
    z = (z ^ (z >> _30)) * _MULTIPLIER_1
    z = (z ^ (z >> _27)) * _MULTIPLIER_2
    return z ^ (z >> _31)


@compiled
def inverse_error_function(x):
    """Giles, "Approximating the erfinv function" (2010), in single precision."""
    w = -log((1.0 - x) * (1.0 + x))
    if w < 5.0:
        w -= 2.5
        p = 2.81022636e-08
        p = 3.43273939e-07 + p * w
        p = -3.5233877e-06 + p * w
        p = -4.39150654e-06 + p * w
        p = 0.00021858087 + p * w
        p = -0.00125372503 + p * w
        p = -0.00417768164 + p * w
        p = 0.246640727 + p * w
        p = 1.50140941 + p * w
    else:
        w = sqrt(w) - 3.0
        p = -0.000200214257
        p = 0.000100950558 + p * w
        p = 0.00134934322 + p * w
        p = -0.00367342844 + p * w
        p = 0.00573950773 + p * w
        p = -0.0076224613 + p * w
        p = 0.00943887047 + p * w
        p = 1.00167406 + p * w
        p = 2.83297682 + p * w
    return p * x


@compiled
def _fill(row, dim, key, seed, kind, center, spread):
    """The initial row of an id, a function of nothing but the arguments."""
    if kind == 0:
        for j in range(dim):
            row[j] = center
        return
    state = mix(np.uint64(key) ^ mix(seed))
    for j in range(dim):
        state += _GOLDEN
        # From (-1, 1), never its ends.
        x = (np.float64(mix(state) >> _11) + 0.5) * (2.0 * _UNIT) - 1.0
        if kind == 2:
            x = sqrt(2.0) * inverse_error_function(x)
        elif kind == 3:
            x = sqrt(2.0) * inverse_error_function(x * _CUT)
        row[j] = center + spread * x


# --- the index -----------------------------------------------------------------------------


@compiled
def find(ids: Array, buckets: Array, masks: Array, rows: Array) -> int:
    """``rows[i]`` becomes the row of ``ids[i]``, or -1; return how many have none."""
    missing = 0
    for i in range(ids.size):
        h = mix(ids[i])
        bucket = h >> _BUCKET_SHIFT
        mask = masks[bucket]
        keys = carray(_int64_at(buckets[bucket]), mask + 1)
        places = carray(_int32_at(buckets[bucket] + 8 * (mask + 1)), mask + 1)
        at = np.int64(h) & mask
        while places[at] >= 0 and keys[at] != ids[i]:
            at = (at + 1) & mask
        rows[i] = places[at]
        if places[at] < 0:
            missing += 1
    return missing


@compiled
def count_missing(ids: Array, rows: Array, needed: Array) -> None:
    """Add to ``needed``, by bucket, the ids whose row is -1."""
    for i in range(ids.size):
        if rows[i] == -1:
            needed[mix(ids[i]) >> _BUCKET_SHIFT] += 1


@compiled
def insert(
    ids: Array, rows: Array, fresh: Array, buckets: Array, masks: Array, counts: Array
) -> int:
    """Give each id whose row is -1 the next of ``fresh``; return how many were used.

    The buckets have room for all of them. An id that comes twice gets one row.
    """
    used = 0
    for i in range(ids.size):
        if rows[i] != -1:
            continue
        h = mix(ids[i])
        bucket = h >> _BUCKET_SHIFT
        mask = masks[bucket]
        keys = carray(_int64_at(buckets[bucket]), mask + 1)
        places = carray(_int32_at(buckets[bucket] + 8 * (mask + 1)), mask + 1)
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


@compiled
def move_bucket(old: int, old_mask: int, new: int, new_mask: int) -> None:
    """Copy the entries of a bucket into a larger one."""
    old_keys = carray(_int64_at(old), old_mask + 1)
    old_places = carray(_int32_at(old + 8 * (old_mask + 1)), old_mask + 1)
    keys = carray(_int64_at(new), new_mask + 1)
    places = carray(_int32_at(new + 8 * (new_mask + 1)), new_mask + 1)
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


@compiled
def remove(ids: Array, buckets: Array, masks: Array, counts: Array) -> None:
    """Forget ids that are there, closing the gaps that they leave."""
    for i in range(ids.size):
        h = mix(ids[i])
        bucket = h >> _BUCKET_SHIFT
        mask = masks[bucket]
        keys = carray(_int64_at(buckets[bucket]), mask + 1)
        places = carray(_int32_at(buckets[bucket] + 8 * (mask + 1)), mask + 1)
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
                # It may move into the gap unless its home lies behind the gap.
                if ((at - home) & mask) >= ((at - gap) & mask):
                    break
            if places[at] < 0:
                break
            keys[gap] = keys[at]
            places[gap] = places[at]
            gap = at


# --- rows ----------------------------------------------------------------------------------


@compiled
def read(
    ids: Array,
    rows: Array,
    out: Array,
    blocks: Array,
    limit: int,
    view: bool,
    shift: int,
    width: int,
    seed: int,
    kind: int,
    center: float,
    spread: float,
) -> None:
    """``out[i]`` becomes the row of ``ids[i]``; its initial row if it has none.

    Only rows below ``limit`` count, and of those with ``view`` only the ones that are the id's in
    these blocks too: the index may have moved on since they were view.
    """
    dim = out.shape[1]
    inside = (1 << shift) - 1
    for i in range(ids.size):
        row = rows[i]
        has = row >= 0 and row < limit
        if has and view:
            end = blocks[row >> shift] + (inside + 1) * width * 4
            has = carray(_int64_at(end), inside + 1)[row & inside] == ids[i]
            end += 8 * (inside + 1)
            has = has and carray(_uint32_at(end), inside + 1)[row & inside] != 0
        if not has:
            _fill(out[i], dim, ids[i], seed, kind, center, spread)
            continue
        address = blocks[row >> shift] + (row & inside) * width * 4
        numbers = carray(_float32_at(address), dim)
        for j in range(dim):
            out[i, j] = numbers[j]


@compiled
def make(
    ids: Array,
    rows: Array,
    first: Array,
    slots: Array,
    dim: int,
    blocks: Array,
    shift: int,
    width: int,
    now: int,
    seed: int,
    kind: int,
    center: float,
    spread: float,
) -> None:
    """Fill the rows of those ``ids`` that are in ``rows`` since just now (``first[i]`` is -1)."""
    inside = (1 << shift) - 1
    for i in range(ids.size):
        if first[i] != -1 or rows[i] < 0:
            continue
        block = blocks[rows[i] >> shift]
        at = rows[i] & inside
        numbers = carray(_float32_at(block + at * width * 4), width)
        _fill(numbers, dim, ids[i], seed, kind, center, spread)
        for s in range(slots.size):
            for j in range(dim):
                numbers[(s + 1) * dim + j] = slots[s]
        end = block + (inside + 1) * width * 4
        carray(_int64_at(end), inside + 1)[at] = ids[i]
        carray(_uint32_at(end + 8 * (inside + 1)), inside + 1)[at] = now


@compiled
def stamp(rows: Array, blocks: Array, shift: int, width: int, now: int) -> bool:
    """Mark rows as used now; say whether one of them comes twice."""
    inside = (1 << shift) - 1
    twice = False
    for i in range(rows.size):
        if rows[i] < 0:
            continue
        end = blocks[rows[i] >> shift] + (inside + 1) * (width * 4 + 8)
        used = carray(_uint32_at(end), inside + 1)
        if used[rows[i] & inside] == now:
            twice = True
        used[rows[i] & inside] = now
    return twice


@compiled
def touch(rows: Array, shift: int, touched: Array) -> None:
    """Mark the blocks that hold these rows."""
    for i in range(rows.size):
        if rows[i] >= 0:
            touched[rows[i] >> shift] = True


@compiled
def gather(rows: Array, out: Array, blocks: Array, shift: int, width: int) -> None:
    """Copy rows, values and slots, to ``out`` of shape (values and slots, rows, dim)."""
    inside = (1 << shift) - 1
    dim = out.shape[2]
    for i in range(rows.size):
        address = blocks[rows[i] >> shift] + (rows[i] & inside) * width * 4
        numbers = carray(_float32_at(address), width)
        for s in range(out.shape[0]):
            for j in range(dim):
                out[s, i, j] = numbers[s * dim + j]


@compiled
def scatter(rows: Array, given: Array, blocks: Array, shift: int, width: int) -> None:
    """Copy rows back from where ``gather`` has put them."""
    inside = (1 << shift) - 1
    dim = given.shape[2]
    for i in range(rows.size):
        address = blocks[rows[i] >> shift] + (rows[i] & inside) * width * 4
        numbers = carray(_float32_at(address), width)
        for s in range(given.shape[0]):
            for j in range(dim):
                numbers[s * dim + j] = given[s, i, j]


@compiled
def collect(
    start: int,
    stop: int,
    ids: Array,
    used: Array,
    out: Array,
    blocks: Array,
    shift: int,
    width: int,
) -> int:
    """Copy the rows of a range that are not free, as many numbers of each as ``out`` takes."""
    inside = (1 << shift) - 1
    found = 0
    for row in range(start, stop):
        block = blocks[row >> shift]
        end = block + (inside + 1) * width * 4
        at = row & inside
        when = carray(_uint32_at(end + 8 * (inside + 1)), inside + 1)[at]
        if when == 0:
            continue
        numbers = carray(_float32_at(block + at * width * 4), width)
        ids[found] = carray(_int64_at(end), inside + 1)[at]
        used[found] = when
        for j in range(out.shape[1]):
            out[found, j] = numbers[j]
        found += 1
    return found


@compiled
def restore(rows: Array, used: Array, given: Array, blocks: Array, shift: int, width: int) -> None:
    """Write rows as ``collect`` has read them; ``given`` may hold less than whole rows."""
    inside = (1 << shift) - 1
    for i in range(rows.size):
        block = blocks[rows[i] >> shift]
        at = rows[i] & inside
        numbers = carray(_float32_at(block + at * width * 4), width)
        for j in range(given.shape[1]):
            numbers[j] = given[i, j]
        end = block + (inside + 1) * (width * 4 + 8)
        carray(_uint32_at(end), inside + 1)[at] = used[i]


@compiled
def expire(
    start: int,
    stop: int,
    now: int,
    max_age: int,
    rows: Array,
    ids: Array,
    blocks: Array,
    shift: int,
    width: int,
) -> int:
    """Free the rows of a range that were not used for ``max_age``; return how many."""
    inside = (1 << shift) - 1
    found = 0
    for row in range(start, stop):
        end = blocks[row >> shift] + (inside + 1) * width * 4
        at = row & inside
        used = carray(_uint32_at(end + 8 * (inside + 1)), inside + 1)
        if used[at] != 0 and (now - np.int64(used[at])) % CLOCK > max_age:
            used[at] = 0
            rows[found] = row
            ids[found] = carray(_int64_at(end), inside + 1)[at]
            found += 1
    return found


# --- gradients -----------------------------------------------------------------------------


@compiled
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


@compiled
def comes_twice(ids: Array, places: Array) -> bool:
    """Whether any id does; ``places`` as in ``merge``."""
    mask = places.size - 1
    for i in range(ids.size):
        at = np.int64(mix(ids[i])) & mask
        while places[at] >= 0:
            if ids[places[at]] == ids[i]:
                return True
            at = (at + 1) & mask
        places[at] = i
    return False


@compiled
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
            h = mix(h + _GOLDEN)
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
