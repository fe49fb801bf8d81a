"""The placement of embedding rows on parameter servers.

The hash of an id selects one of a fixed number of virtual buckets, and each server has an equal
share of them in a row. Workers and servers must agree on this, so it is part of the protocol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

BUCKETS = 4096
"""There are far more buckets than servers, so that shares are even."""

_A, _B = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)
_SHIFT, _TOP = np.uint64(32), np.uint64(52)  # 2^(64-52) buckets


def server_of(ids: npt.NDArray[np.int64], servers: int) -> npt.NDArray[Any]:
    """Return the number of the server that has each id.

    Args:
        ids: int64.
        servers: how many there are, from 1 to ``BUCKETS``.
    """
    x = np.ascontiguousarray(ids).view(np.uint64)
    x = (x ^ (x >> _SHIFT)) * _A
    x = (x ^ (x >> _SHIFT)) * _B
    return (x >> _TOP).astype(np.int64) * servers // BUCKETS
