"""A worker process for tests, started by a master as if it were ``edl_worker``.

Usage: ``python instance.py -P -m edl_worker --master HOST:PORT --worker-id N``, which is what a
master calls when EDL_PYTHON names a script that runs this file. ``EDL_TEST_WEIGHTS`` is the
number of records; ``EDL_TEST_DELAY_S`` how long each minibatch takes; and while the file
``EDL_TEST_HELD`` is there, no worker begins a minibatch of a task whose number is not below the
one in it, not even when it is asked to leave.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fakes.threads import ThreadInstance

from edl_runtime.local import process_identity
from edl_testing.fake_worker import FakeWorker, WorkerBehavior


def main(arguments: list[str]) -> int:
    master = arguments[arguments.index("--master") + 1]
    number = int(arguments[arguments.index("--worker-id") + 1])
    behavior = WorkerBehavior(int(os.environ["EDL_TEST_WEIGHTS"]), at_minibatch=_take_time)
    pid = os.getpid()
    started = process_identity.start_time(pid)
    assert started is not None
    instance = ThreadInstance(number, 0, process_identity.instance_name(pid, started))
    signal.signal(signal.SIGTERM, lambda *_: instance.asked.set())
    print(f"worker {number} on {socket.gethostname()}", flush=True)
    threading.Thread(target=_leave_with, args=(master,), daemon=True).start()
    with FakeWorker(behavior, instance, master) as worker:
        return worker.live()


def _take_time(worker: FakeWorker, minibatch: int) -> None:
    held = Path(os.environ["EDL_TEST_HELD"])
    with contextlib.suppress(FileNotFoundError):
        while minibatch >= int(held.read_text()):
            time.sleep(0.01)
    time.sleep(float(os.environ.get("EDL_TEST_DELAY_S", "0")))


def _leave_with(master: str) -> None:
    """End when the master is gone: workers do so by themselves."""
    host, _, port = master.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            os._exit(9)
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
