"""One call at a time in a background thread."""

from __future__ import annotations

import threading

import pytest

from edl_worker.concurrency.background_call import BackgroundCall


def test_calls_are_made_beside_one_at_a_time() -> None:
    call: BackgroundCall[int] = BackgroundCall("test")
    release = threading.Event()
    call.start(lambda: 1 if release.wait(200) else 0)
    assert call.is_pending
    call.discard(lambda waited_s: False)  # it has not ended
    assert not call.is_pending
    release.set()
    call.start(lambda: 2)
    assert call.result() == 2, "after the one before"

    def fails() -> int:
        raise KeyError("nothing here")

    call.start(fails)
    with pytest.raises(KeyError):
        call.result()
    call.defer(fails)
    call.discard(lambda waited_s: True)  # a deferred call is never made
    call.defer(lambda: 3)
    assert call.result() == 3
