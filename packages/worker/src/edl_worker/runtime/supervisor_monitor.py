"""The worker's part in the recovery of its job's master (docs/adr/0016).

A supervisor and its master may be killed together; then only the workers are left to notice. So
each worker looks at the lock of the job's supervisor, from its start on: before it registers,
while it loads the model file, and whether a master answers or not.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from edl_runtime.local import supervision
from edl_worker.concurrency.shared_state import Departure, SharedState

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0

DELAY_PER_WORKER_S = 0.25
DELAY_MAX_S = 10.0
"""Worker 0 starts a missing supervisor at once, the others only if it is still missing later."""

OVER_S = 10.0
"""A worker of a job that has been over for so long was left behind, and leaves."""


class SupervisorMonitor:
    """A monitor that starts the supervisor of a job on this machine if it has none.

    Args:
        job_dir: of the job.
        worker_id: decides which worker is first.
        state: of this worker; one that leaves starts nothing any more.
    """

    def __init__(self, job_dir: Path, worker_id: int, state: SharedState) -> None:
        self._job_dir = job_dir
        self._state = state
        delay_s = min(DELAY_MAX_S, DELAY_PER_WORKER_S * worker_id)
        self._watch = supervision.SupervisorWatch(job_dir, delay_s)
        self._over_since: float | None = None

    def start(self) -> None:
        """Look once a second, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="supervisor-monitor", daemon=True).start()

    def check(self, now: float) -> None:
        """Look once; ``now`` is in seconds of a monotonic clock."""
        if self._watch.check(now):
            log.warning("the job has no supervisor: starting one")
        # A supervisor ends the workers of a job that is over itself.
        if not self._watch.is_missing or not supervision.is_over(self._job_dir):
            self._over_since = None
        elif self._over_since is None:
            self._over_since = now
        elif now - self._over_since >= OVER_S:
            self._state.leave(Departure("job-over", report=False))

    def _run(self) -> None:
        while not self._state.leaving:
            try:
                self.check(time.monotonic())
            except Exception:
                log.exception("checking the job's supervisor failed")
            time.sleep(CHECK_EVERY_S)
