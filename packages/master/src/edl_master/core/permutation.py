"""Seeded orders and seeds: the same numbers on every machine, without memory.

The order of an epoch's tasks is a permutation that is computed position by position: a
Feistel network shuffles the smallest even number of bits that holds all task numbers, and
results beyond the last number are shuffled again until they fit ("cycle walking"). Ten
tasks or 10**9 take the same few integers of memory.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = 6
"""Four rounds are enough for a pseudo-random look; two more cost microseconds."""


def _mix(number: int) -> int:
    """Scatter the bits of a 64-bit number (the finalizer of SplitMix64)."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def derive_seed(*numbers: int) -> int:
    """Make one seed, 0 to 2**63 - 1, of several numbers; their order matters."""
    seed = 0
    for number in numbers:
        seed = _mix((seed + _GOLDEN + (number & _MASK)) & _MASK)
    return seed >> 1


def task_seed(job_seed: int, round_: int, number: int) -> int:
    """Return the seed of a task: equal in every run of the task, on every worker."""
    return derive_seed(job_seed, round_, number)


class Permutation:
    """A seeded order of the numbers 0 to ``size - 1``.

    Args:
        size: how many numbers.
        seed: equal seeds give equal orders.
    """

    __slots__ = ("_half_bits", "_half_mask", "_keys", "size")

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half_mask = (1 << self._half_bits) - 1
        self._keys = tuple(derive_seed(seed, turn) for turn in range(_ROUNDS))

    def at(self, position: int) -> int:
        """Return the number at a position.

        Raises:
            IndexError: the position is not one of 0 to ``size - 1``.
        """
        if not 0 <= position < self.size:
            raise IndexError(f"position {position} of {self.size}")
        number = self._shuffle(position)
        while number >= self.size:
            number = self._shuffle(number)
        return number

    def _shuffle(self, number: int) -> int:
        left, right = number >> self._half_bits, number & self._half_mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._half_mask)
        return (left << self._half_bits) | right
