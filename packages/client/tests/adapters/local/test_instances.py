"""Which instances the end of a job has ended."""

from __future__ import annotations

import signal

from edl.adapters.local import instances


class Stuck:
    """A process in a call of a file server that is gone: no signal ends it."""

    is_alive = True

    def send(self, what: signal.Signals) -> None:
        """Do nothing."""


class Mortal(Stuck):
    def send(self, what: signal.Signals) -> None:
        self.is_alive = False


def test_an_instance_that_cannot_be_killed_does_not_count_as_ended() -> None:
    mortal = Mortal()
    assert instances.end([Stuck(), mortal], 0.0) == [mortal]
    assert instances.end([Stuck(), mortal], 0.0) == []
