"""The identity of a worker process."""

from __future__ import annotations

from edl_worker.runtime.identity import identity


def test_the_identity_names_this_process_and_no_later_one() -> None:
    who = identity(4)
    assert (who.worker_id, who.instance) == (4, identity(4).instance)
    host, pid, started = who.instance.rsplit(":", 2)
    assert (host, int(pid)) == (who.host, who.pid)
    assert float(started) > 0
