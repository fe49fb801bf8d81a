"""The inner loops between numbers of 32 and of 16 bits, compiled as those of ``kernels`` are.

The loops compute on the bits of numbers, with integer arithmetic and no branches, which vectorises;
numba cannot use the processor's conversions. Results are those of IEEE 754: rounded to nearest,
ties to even; numbers that are too large become infinity, and NaN stays NaN.
"""

from __future__ import annotations

import numpy as np

from edl_master.core.parameters.kernels import compile_lazily
from edl_master.core.parameters.layout import Array

u = np.uint32
f = np.float32

# Each step stays in 32 bits explicitly: numba would use 64, half as many at a time.


@compile_lazily
def quantize_float16(bits: Array, out: Array) -> None:
    """float32, as uint32, to float16, as uint16."""
    for i in range(bits.size):
        x = u(bits[i])
        size = u(x & u(0x7FFFFFFF))
        odd = u(u(size >> u(13)) & u(1))
        # The exponent has another origin, 112 lower; rounding may carry into it.
        normal = u(u(size - u(112 << 23) + u(0xFFF) + odd) >> u(13))
        # Near 0.5 the last bit of a float32 is worth what that of a subnormal float16 is.
        small = u(np.float32(np.uint32(size).view(np.float32) + f(0.5)).view(np.uint32))
        found = u(small - u(0x3F000000)) if size < u(113 << 23) else normal
        beyond = u(0x7E00) if size > u(0x7F800000) else u(0x7C00)
        found = beyond if size >= u(0x47800000) else found
        out[i] = found | u(u(x >> u(16)) & u(0x8000))


@compile_lazily
def dequantize_float16(bits: Array, out: Array) -> None:
    """float16, as uint16, to float32, as uint32; exact."""
    for i in range(bits.size):
        x = u(bits[i])
        size = u(u(x & u(0x7FFF)) << u(13))
        exponent = u(size & u(0x0F800000))
        found = u(size + u(112 << 23))
        found = u(found + u(112 << 23)) if exponent == u(0x0F800000) else found
        # A subnormal has no leading one: with one it is larger by 2**-14.
        small = f(np.uint32(found + u(1 << 23)).view(np.float32) - f(6.103515625e-05))
        found = u(np.float32(small).view(np.uint32)) if exponent == u(0) else found
        out[i] = found | u(u(x & u(0x8000)) << u(16))


@compile_lazily
def quantize_bfloat16(bits: Array, out: Array) -> None:
    """float32, as uint32, to bfloat16, as uint16."""
    for i in range(bits.size):
        x = u(bits[i])
        found = u(u(x + u(0x7FFF) + u(u(x >> u(16)) & u(1))) >> u(16))
        is_nan = u(x & u(0x7FFFFFFF)) > u(0x7F800000)
        out[i] = u(u(x >> u(16)) | u(0x40)) if is_nan else found


@compile_lazily
def dequantize_bfloat16(bits: Array, out: Array) -> None:
    """bfloat16, as uint16, to float32, as uint32; exact."""
    for i in range(bits.size):
        out[i] = u(bits[i]) << u(16)
