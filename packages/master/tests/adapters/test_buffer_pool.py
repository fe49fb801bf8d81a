"""Memory for payloads: used again, and given back when it is not."""

from __future__ import annotations

from contextlib import ExitStack

from edl_master.adapters.buffer_pool import IDLE_S, BufferPool

SIZE = 1000


def borrow(buffers: BufferPool, at_a_time: int) -> None:
    with ExitStack() as stack:
        for _ in range(at_a_time):
            assert len(stack.enter_context(buffers.borrow(SIZE))) == SIZE


def test_a_buffer_is_used_again() -> None:
    buffers = BufferPool()
    with buffers.borrow(SIZE) as one:
        one[0] = 7
    with buffers.borrow(SIZE) as again, buffers.borrow(SIZE) as other:
        assert again[0] == 7
        again[1], other[1] = 1, 2
        assert (again[1], other[1]) == (1, 2), "two borrowers share no memory"


def test_what_is_not_needed_is_given_back() -> None:
    buffers, now = BufferPool(), 100.0
    buffers.trim(now)
    borrow(buffers, 3)
    now += IDLE_S
    buffers.trim(now)
    assert buffers.free_nbytes == 3 * SIZE, "they were all needed since"
    borrow(buffers, 1)
    borrow(buffers, 2)
    buffers.trim(now + IDLE_S / 2)
    assert buffers.free_nbytes == 3 * SIZE, "too early to say"
    now += IDLE_S
    buffers.trim(now)
    assert buffers.free_nbytes == 2 * SIZE, "two were needed at a time"
    buffers.trim(now + IDLE_S)
    assert buffers.free_nbytes == 0


def test_a_borrowed_buffer_is_returned_in_the_end() -> None:
    buffers, now = BufferPool(), 0.0
    with buffers.borrow(SIZE):
        for _ in range(3):
            now += IDLE_S
            buffers.trim(now)
    assert buffers.free_nbytes == SIZE
    now += IDLE_S
    buffers.trim(now)
    buffers.trim(now + IDLE_S)
    assert buffers.free_nbytes == 0
