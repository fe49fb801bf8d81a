"""The master's own page server, with a job whose owner may change it at any time."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from edl_master.adapters.http import StatusServer
from edl_master.adapters.page_access import PageAccess
from edl_master.core.timeline_summary import JobTimes
from edl_proto.v1.job_pb2 import Event, JobStatus
from edl_runtime.identity.page_key import PageKey
from page import timelines

KEY = PageKey.create()
"""Of all made-up jobs: one may come back where it was, as after the restart of a master."""


class PageServer:
    """The page of one made-up job on the loopback interface; a context manager.

    Attributes:
        url: address of the page, below which everything of it is.
        failing: answer the API with an error of the server.
    """

    def __init__(self, status: JobStatus, events: Sequence[Event] = (), port: int = 0) -> None:
        self._lock = threading.Lock()
        self._gone = False
        self.failing = False
        self.tell(status, events)
        self._folder = tempfile.TemporaryDirectory(prefix="page-")
        self.key = KEY
        access = PageAccess(KEY, Path(self._folder.name), status.name)
        self._server = StatusServer("127.0.0.1", port, self, access)
        self.port = self._server.port
        self.url = f"http://127.0.0.1:{self.port}/"

    def link(self) -> str:
        """A new one, which opens the page once."""
        return self.key.link(self.url, time.time())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, status: JobStatus, events: Sequence[Event]) -> None:
        """Answers with these from now on; ``events`` are all events of the job, in order."""
        with self._lock:
            self._status, self._events = status, list(events)

    def close(self) -> None:
        """Is gone, as a master whose process has ended; may be called again."""
        if not self._gone:
            self._gone = True
            self._server.close()
            self._folder.cleanup()

    def status(self) -> JobStatus:
        self._check()
        with self._lock:
            return self._status

    def events(self, after: int, limit: int) -> Sequence[Event]:
        self._check()
        with self._lock:
            return [event for event in self._events if event.number > after][:limit]

    def times(self) -> JobTimes:
        self._check()
        with self._lock:
            return timelines.times(self._status)

    def metrics(self) -> bytes:
        return b""

    def is_ready(self) -> bool:
        return not self.failing

    def _check(self) -> None:
        if self._gone:
            # A connection that the browser kept open outlives the listening socket. SystemExit
            # ends its thread without an answer, as the end of the process would.
            raise SystemExit
        if self.failing:
            raise OSError("failing, as the test asked")
