"""Reports of a member of the replica group, which go to the master behind the steps."""

from __future__ import annotations

import logging
import threading
import time

import grpc

from edl_proto.errors import EdlError
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core.member_progress import MemberProgress
from edl_worker.core.tasks import MasterReplacedError
from edl_worker.transport.replica_client import ReplicaClient

log = logging.getLogger(__name__)

INTERVAL_S = 0.1
"""Between two reports of a member of a small group, unless it has stopped."""

REPORTS_PER_S = 500
"""That the master of a large group takes; its members report less often."""


def report_interval(members: int) -> float:
    """Return the seconds between two reports of one of so many members."""
    return max(INTERVAL_S, members / REPORTS_PER_S)


class ReplicaReporter:
    """A thread that reports how far a member is, and learns when its generation ends.

    Attributes:
        lock: must be held to use the progress, and never during a call.
    """

    def __init__(self, client: ReplicaClient, progress: MemberProgress, state: SharedState) -> None:
        self.lock = threading.Lock()
        self._client = client
        self._progress = progress
        self._state = state
        self._hurry = threading.Event()
        self._fails = False
        self._thread = threading.Thread(target=self._run, name="replica-report", daemon=True)

    def start(self) -> None:
        """Start to report, unless that has started already."""
        if not self._thread.is_alive():
            self._thread.start()

    def hurry(self) -> None:
        """Report at once."""
        self._hurry.set()

    def _run(self) -> None:
        while True:
            started = time.monotonic()
            self._report()
            with self.lock:
                interval_s = report_interval(self._progress.size)
            self._hurry.wait(max(0.0, started + interval_s - time.monotonic()))
            self._hurry.clear()

    def _report(self) -> None:
        incarnation = self._client.incarnation
        with self.lock:
            report = self._progress.take_report()
        if report is None or self._state.master_replaced:
            return
        try:
            answer = self._client.report(incarnation, report)
        except MasterReplacedError:
            # Unless the session has registered again in the meantime.
            self._state.master_replaced = incarnation == self._client.incarnation
        except grpc.RpcError as error:
            self._on_failure(f"{error.code().name}: {error.details()}")
        except EdlError as error:
            self._on_failure(error.what)
        else:
            self._fails = False
            with self.lock:
                if incarnation == self._client.incarnation:
                    self._progress.on_answer(report, answer)
            if answer.all_wanted and not report.complete:
                self.hurry()

    def _on_failure(self, cause: str) -> None:
        if not self._fails:
            log.warning("a report of steps has failed, and is repeated: %s", cause)
        self._fails = True
