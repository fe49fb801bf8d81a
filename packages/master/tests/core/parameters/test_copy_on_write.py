"""Views of arrays stay as they were, whatever is read and changed in which order."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.identifiers import Token
from edl_master.core.parameters import copy_on_write
from edl_master.core.parameters.copy_on_write import CopyOnWriteView, CopyOnWriteViews
from edl_master.core.parameters.modes import Async, Reduction, Sync

from .planes import A, B, push, sgd, small_plane


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of four numbers, two of which share memory."""
    monkeypatch.setattr(copy_on_write, "PIECE_BYTES", 16)
    monkeypatch.setattr(copy_on_write, "_SLAB_PIECES", 2)


def numbers(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32)


@settings(deadline=None)
@given(
    size=st.integers(0, 30),
    steps=st.lists(
        st.sampled_from(["change", "take", "read a piece", "look", "drop"]), max_size=25
    ),
)
def test_a_view_stays_as_it_was(  # noqa: C901  (one case for each step)
    size: int, steps: list[str]
) -> None:
    array, views = numbers(size), CopyOnWriteViews(None)
    held: list[tuple[CopyOnWriteView, np.ndarray]] = []
    reading, read, expected = None, [], np.empty(0)
    for step in steps:
        match step:
            case "change":
                views.preserve([array])
                array += 1
            case "take":
                held.append((views.take(array), array.copy()))
            case "drop" if held:
                held.pop(0)
            case "look":
                for view, then in held:
                    np.testing.assert_array_equal(np.asarray(view), then)
            case "read a piece":
                if reading is None:
                    if not held:
                        continue
                    view, expected = held.pop()
                    reading, read = view.pieces(), []
                for piece in reading:
                    read.append(piece.copy())
                    break
                else:
                    np.testing.assert_array_equal(np.concatenate([*read, []]), expected)
                    reading = None


def test_changes_and_reading_at_the_same_time() -> None:
    """The array counts up; each reader must see one count, though others go on counting."""
    with ThreadPoolExecutor(2) as threads:
        views = CopyOnWriteViews(threads)
        array, lock, over = np.zeros(10_000, np.float64), threading.Lock(), threading.Event()

        def count() -> None:
            while not over.is_set():
                with lock:
                    views.preserve([array])
                    array[:] += 1

        counting = threading.Thread(target=count)
        counting.start()
        try:
            for _ in range(30):
                with lock:
                    view, then = views.take(array), array[0]
                pieces = [piece.copy() for piece in view.pieces()]
                assert set(np.concatenate(pieces)) == {then}
        finally:
            over.set()
            counting.join()


def test_pieces_are_given_once() -> None:
    array, views = numbers(10), CopyOnWriteViews(None)
    view = views.take(array)
    assert [piece.tolist() for piece in view.pieces()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    views.preserve([array])
    assert view.find_unpreserved() == [], "what was read need not be copied any more"
    with pytest.raises(ValueError, match="was read"):
        np.asarray(view)


def test_only_what_changes_and_is_held_is_copied() -> None:
    array, views = numbers(10), CopyOnWriteViews(None)
    kept, dropped = views.take(array), views.take(array)
    gone = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert gone() is None, "the set holds no reference to its views"
    views.preserve([numbers(10)])
    assert kept.find_unpreserved() == [0, 1, 2], "another array was changed"
    views.preserve([array])
    assert kept.find_unpreserved() == []


def test_a_snapshot_keeps_values_slots_and_what_was_accumulated() -> None:
    plane = small_plane(Sync(2, Reduction.SUM), trainable=9, state=3)
    plane.grant(A, Token(1))
    plane.grant(B, Token(1))
    push(plane, A, 1, 0, [1] * 9, state=[2] * 3)
    snapshot = plane.snapshot()
    expected = {name: np.array(array) for name, array in plane.snapshot().arrays.items()}
    assert "accumulated/gradient/trainable/float32" in expected
    push(plane, B, 1, 0, [5] * 9, state=[4] * 3)
    push(plane, A, 1, 1, [7] * 9, state=[6] * 3)
    for name, array in snapshot.arrays.items():
        np.testing.assert_array_equal(np.asarray(array), expected[name], err_msg=name)


def test_finishing_leaves_a_snapshot_alone() -> None:
    optimizer = sgd(1.0, use_ema=True, ema_momentum=0.5)
    plane = small_plane(Async(), optimizer, trainable=9, state=0)
    plane.grant(A, Token(1))
    for minibatch in range(3):
        push(plane, A, 1, minibatch, [1] * 9)
    snapshot = plane.snapshot()
    expected = {name: np.array(array) for name, array in plane.snapshot().arrays.items()}
    assert plane.finish()
    for name, array in snapshot.arrays.items():
        np.testing.assert_array_equal(np.asarray(array), expected[name], err_msg=name)
