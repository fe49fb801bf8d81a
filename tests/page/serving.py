"""The master's own page server, with a job whose owner may change it at any time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Self

from edl_master.adapters.http import StatusServer
from edl_proto.v1.job_pb2 import Event, JobStatus


class PageServer:
    """The page of one made-up job on the loopback interface; a context manager.

    Attributes:
        url: address of the page.
        failing: answer the API with an error of the server.
    """

    def __init__(self, status: JobStatus, events: Sequence[Event] = (), port: int = 0) -> None:
        self._lock = threading.Lock()
        self._gone = False
        self.failing = False
        self.tell(status, events)
        self._server = StatusServer("127.0.0.1", port, self)
        self.port = self._server.port
        self.url = f"http://127.0.0.1:{self.port}/"

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

    def status(self) -> JobStatus:
        self._check()
        with self._lock:
            return self._status

    def events(self, after: int, limit: int) -> Sequence[Event]:
        self._check()
        with self._lock:
            return [event for event in self._events if event.number > after][:limit]

    def metrics(self) -> bytes:
        return b""

    def _check(self) -> None:
        if self._gone:
            # A connection that the browser kept open outlives the listening socket. SystemExit
            # ends its thread without an answer, as the end of the process would.
            raise SystemExit
        if self.failing:
            raise OSError("failing, as the test asked")
