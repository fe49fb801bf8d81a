"""The loops over rows, compiled by numba: initial values, reads, updates and expiry.

Rows lie in *blocks*: one piece of memory each, of ``2^shift`` rows of ``width`` float32 numbers,
then the ids of these rows (int64), then when each was last used (uint32; 0: the row is free).
Loops are given the addresses of blocks, since their number grows.

Importing this module loads numba; ``arithmetic.kernel`` does so when it is first needed.
"""

# numba's own types have no annotations, and what it compiles is not plain Python.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return, misc, assignment"
from __future__ import annotations

from math import log, sqrt

import numpy as np
from numba import carray

from edl_master.core.parameters.kernels import compile_lazily
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.tables.kernel_primitives import (
    GOLDEN,
    float32_at,
    int64_at,
    mix,
    uint32_at,
)
from edl_master.core.parameters.tables.row_blocks import CLOCK

_11 = np.uint64(11)
_UNIT = 1.0 / (1 << 53)
_CUT = 0.9544997361036416  # of the standard normal distribution lies between -2 and 2

# --- initial rows --------------------------------------------------------------------------


@compile_lazily
def _inverse_error_function(x):
    """Compute it as Giles, "Approximating the erfinv function" (2010), in single precision."""
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


@compile_lazily
def _fill(row, dim, key, seed, kind, center, spread):
    """Fill in the initial row of an id, which depends on the arguments alone."""
    if kind == 0:
        for j in range(dim):
            row[j] = center
        return
    state = mix(np.uint64(key) ^ mix(seed))
    for j in range(dim):
        state += GOLDEN
        # From (-1, 1), never its ends.
        x = (np.float64(mix(state) >> _11) + 0.5) * (2.0 * _UNIT) - 1.0
        if kind == 2:
            x = sqrt(2.0) * _inverse_error_function(x)
        elif kind == 3:
            x = sqrt(2.0) * _inverse_error_function(x * _CUT)
        row[j] = center + spread * x


# --- rows ----------------------------------------------------------------------------------


@compile_lazily
def read(
    ids: Array,
    bounds: Array,
    rows: Array,
    out: Array,
    blocks: Array,
    limits: Array,
    view: bool,
    shift: int,
    width: int,
    seeds: Array,
    kinds: Array,
    centers: Array,
    spreads: Array,
) -> None:
    """``out[i]`` becomes the row of ``ids[i]``; its initial row if it has none.

    The ids from ``bounds[t]`` to ``bounds[t + 1]`` are of table ``t``, whose blocks have the
    addresses at ``blocks[t]``. Only rows below ``limits[t]`` count, and of those with ``view`` only
    the ones that are the id's in these blocks too: the index may have moved on since the view was
    taken.
    """
    dim = out.shape[1]
    inside = (1 << shift) - 1
    for t in range(blocks.size):
        limit = limits[t]
        addresses = carray(int64_at(blocks[t]), (limit >> shift) + 1)
        for i in range(bounds[t], bounds[t + 1]):
            row = rows[i]
            has = row >= 0 and row < limit
            if has and view:
                end = addresses[row >> shift] + (inside + 1) * width * 4
                has = carray(int64_at(end), inside + 1)[row & inside] == ids[i]
                end += 8 * (inside + 1)
                has = has and carray(uint32_at(end), inside + 1)[row & inside] != 0
            if not has:
                _fill(out[i], dim, ids[i], seeds[t], kinds[t], centers[t], spreads[t])
                continue
            numbers = carray(float32_at(addresses[row >> shift] + (row & inside) * width * 4), dim)
            for j in range(dim):
                out[i, j] = numbers[j]


@compile_lazily
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
        numbers = carray(float32_at(block + at * width * 4), width)
        _fill(numbers, dim, ids[i], seed, kind, center, spread)
        for s in range(slots.size):
            for j in range(dim):
                numbers[(s + 1) * dim + j] = slots[s]
        end = block + (inside + 1) * width * 4
        carray(int64_at(end), inside + 1)[at] = ids[i]
        carray(uint32_at(end + 8 * (inside + 1)), inside + 1)[at] = now


@compile_lazily
def stamp(rows: Array, bounds: Array, blocks: Array, shift: int, width: int, now: Array) -> int:
    """Mark rows as used now; return the first table in which one of them appears twice, or -1.

    Tables are as in ``read``; ``now[t]`` is the moment of table ``t``.
    """
    inside = (1 << shift) - 1
    twice = -1
    for t in range(blocks.size):
        for i in range(bounds[t], bounds[t + 1]):
            if rows[i] < 0:
                continue
            addresses = carray(int64_at(blocks[t]), (rows[i] >> shift) + 1)
            end = addresses[rows[i] >> shift] + (inside + 1) * (width * 4 + 8)
            used = carray(uint32_at(end), inside + 1)
            if used[rows[i] & inside] == now[t] and twice < 0:
                twice = t
            used[rows[i] & inside] = now[t]
    return twice


@compile_lazily
def touch(rows: Array, shift: int, touched: Array) -> None:
    """Mark the blocks that hold these rows."""
    for i in range(rows.size):
        if rows[i] >= 0:
            touched[rows[i] >> shift] = True


@compile_lazily
def gather(
    rows: Array, bounds: Array, start: int, out: Array, blocks: Array, shift: int, width: int
) -> None:
    """Copy rows from ``start`` on to ``out`` of shape (values and slots, rows, dim).

    Tables are as in ``read``.
    """
    inside = (1 << shift) - 1
    dim = out.shape[2]
    stop = start + out.shape[1]
    for t in range(blocks.size):
        for i in range(max(start, bounds[t]), min(stop, bounds[t + 1])):
            addresses = carray(int64_at(blocks[t]), (rows[i] >> shift) + 1)
            address = addresses[rows[i] >> shift] + (rows[i] & inside) * width * 4
            numbers = carray(float32_at(address), width)
            for s in range(out.shape[0]):
                for j in range(dim):
                    out[s, i - start, j] = numbers[s * dim + j]


@compile_lazily
def scatter(
    rows: Array, bounds: Array, start: int, given: Array, blocks: Array, shift: int, width: int
) -> None:
    """Copy rows back from where ``gather`` has put them."""
    inside = (1 << shift) - 1
    dim = given.shape[2]
    stop = start + given.shape[1]
    for t in range(blocks.size):
        for i in range(max(start, bounds[t]), min(stop, bounds[t + 1])):
            addresses = carray(int64_at(blocks[t]), (rows[i] >> shift) + 1)
            address = addresses[rows[i] >> shift] + (rows[i] & inside) * width * 4
            numbers = carray(float32_at(address), width)
            for s in range(given.shape[0]):
                for j in range(dim):
                    numbers[s * dim + j] = given[s, i - start, j]


@compile_lazily
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
        when = carray(uint32_at(end + 8 * (inside + 1)), inside + 1)[at]
        if when == 0:
            continue
        numbers = carray(float32_at(block + at * width * 4), width)
        ids[found] = carray(int64_at(end), inside + 1)[at]
        used[found] = when
        for j in range(out.shape[1]):
            out[found, j] = numbers[j]
        found += 1
    return found


@compile_lazily
def restore(rows: Array, used: Array, given: Array, blocks: Array, shift: int, width: int) -> None:
    """Write rows as ``collect`` has read them; ``given`` may hold less than whole rows."""
    inside = (1 << shift) - 1
    for i in range(rows.size):
        block = blocks[rows[i] >> shift]
        at = rows[i] & inside
        numbers = carray(float32_at(block + at * width * 4), width)
        for j in range(given.shape[1]):
            numbers[j] = given[i, j]
        end = block + (inside + 1) * (width * 4 + 8)
        carray(uint32_at(end), inside + 1)[at] = used[i]


@compile_lazily
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
        used = carray(uint32_at(end + 8 * (inside + 1)), inside + 1)
        if used[at] != 0 and (now - np.int64(used[at])) % CLOCK > max_age:
            used[at] = 0
            rows[found] = row
            ids[found] = carray(int64_at(end), inside + 1)[at]
            found += 1
    return found
