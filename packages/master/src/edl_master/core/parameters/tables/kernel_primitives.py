"""Primitives of the compiled loops of embedding tables: memory by address, and hashes of ids.

numba compiles these functions into the loops that call them. Its cache compares only the file of
the loop: after a change here, touch ``index_kernels`` and ``row_kernels`` too.
"""

# numba's own types have no annotations, and what it compiles is not plain Python.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return, misc, assignment"
from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from edl_master.core.parameters.kernels import compile_lazily

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: the increment of SplitMix64."""

_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _pointer(of: Any) -> Any:
    @intrinsic
    def pointer(typing_context, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(of)(address), generate

    return pointer


float32_at = _pointer(types.float32)
int64_at = _pointer(types.int64)
int32_at = _pointer(types.int32)
uint32_at = _pointer(types.uint32)


@compile_lazily
def mix(x):
    """Spread 64 bits over 64 bits, one to one: the last steps of SplitMix64 (Steele 2014)."""
    z = np.uint64(x)
    z = (z ^ (z >> _30)) * _MULTIPLIER_1
    z = (z ^ (z >> _27)) * _MULTIPLIER_2
    return z ^ (z >> _31)
