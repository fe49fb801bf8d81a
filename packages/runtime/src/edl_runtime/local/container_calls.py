"""Calls of a master in a container to its companion, which starts its workers.

They go through a Unix socket in the job's directory, which the master's container sees and the
workers' containers do not. A call is a connection: one JSON object there, one back, each a line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from edl_proto import unix_socket
from edl_proto.file_limit import FileLimit
from edl_runtime.local import job_directory

log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a call. Raises: CallRefusedError, with the reason for the caller."""

_LONGEST = 1 << 20  # octets of a request or an answer
_REQUEST_S = 10.0
_MOST_CALLS = 4096
"""At a time: one for each worker, which waits for its end, and some."""
_RETRY_S = 0.1


class CallRefusedError(Exception):
    """The companion did not do what was asked; the text says why."""


def call(job_dir: Path, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Call the companion of this job's container.

    Raises:
        CallRefusedError: it did not do it.
        OSError: it cannot be reached, or ended meanwhile.
    """
    with unix_socket.connect(job_dir / job_directory.CALLS, timeout_s) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            line = answers.readline(_LONGEST)
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the companion ended during the call")
    answer = json.loads(line)
    if "refused" in answer:
        raise CallRefusedError(str(answer["refused"]))
    found: dict[str, Any] = answer["answer"]
    return found


class CallListener:
    """Answers the calls of one job's master. Also a context manager.

    Args:
        job_dir: of the job; a socket that an earlier process left there is replaced.
        handle: called in a thread of its own for each call.
    """

    def __init__(self, job_dir: Path, handle: Handler) -> None:
        self._handle = handle
        self._free = threading.BoundedSemaphore(_MOST_CALLS)
        self._socket = unix_socket.listen(job_dir / job_directory.CALLS, 128)

    def __enter__(self) -> CallListener:
        threading.Thread(target=self._accept, name="container-calls", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes ``accept``, which close does not
        self._socket.close()

    def _accept(self) -> None:
        limit = FileLimit("calls of the master")
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not limit.is_reason(error):
                    return  # it is closed
                time.sleep(_RETRY_S)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="container-call", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no thread left at the moment
                log.warning("a call of the master is not taken: %s", error)
                connection.close()
                self._free.release()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_REQUEST_S)
                with connection.makefile("rb") as requests:
                    line = requests.readline(_LONGEST)
                connection.sendall(json.dumps(self._answer(line)).encode() + b"\n")
        finally:
            self._free.release()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not line.endswith(b"\n") or not isinstance(request, dict):
                raise ValueError
        except (ValueError, RecursionError):
            return {"refused": "the call is not a JSON object on one line"}
        try:
            return {"answer": dict(self._handle(request))}
        except CallRefusedError as refused:
            return {"refused": str(refused)}
        except Exception as error:
            log.exception("a call of the master failed")
            return {"refused": f"internal error: {type(error).__name__}"}
