"""Makes the C library's allocator reuse freed memory instead of returning it to the system.

TensorFlow's generator dataset, on which ``tfdata`` builds, makes the allocator return all free
memory above 128 KiB. From then on every large tensor of this process, also in training, is new
memory, whose pages the system first fills with zeros.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h

# The value at which the GNU C library arrives once a program has freed such a piece.
_MAX_KEPT_BYTES = 32 << 20
_CHOSEN_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Undo TensorFlow's change of the allocator, unless the user has configured the allocator.

    Args:
        environ: the environment variables of the process.

    Returns:
        Whether the allocator was changed.
    """
    if any(name in environ for name in _CHOSEN_BY_USER):
        return False
    mallopt = _mallopt()
    if mallopt is None:
        return False
    # Both: a program that sets one of them has to know the other one, too.
    return bool(
        mallopt(_MMAP_THRESHOLD, _MAX_KEPT_BYTES) and mallopt(_TRIM_THRESHOLD, 2 * _MAX_KEPT_BYTES)
    )


@functools.cache
def _mallopt() -> Callable[[int, int], int] | None:
    try:
        return ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none of that name
        return None
