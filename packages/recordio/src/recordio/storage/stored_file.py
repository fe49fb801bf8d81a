"""An object of a store as a file: its parts are fetched concurrently, ahead of the reader.

If the range to be read is known, all of it is fetched at once, in up to ``DEPTH`` parts, and
nothing beyond it. Otherwise the read-ahead grows while a file is read sequentially, so that reading
at one offset costs one small request. While the reader has to wait, more parts are requested, up to
``MAX_DEPTH``: a fast connection of high latency would not be filled otherwise.
"""

from __future__ import annotations

import io
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from recordio.errors import RecordError, UnreadableFile
from recordio.storage.store_errors import is_transient, reason_of
from recordio.storage.stores import StoredObject

T = TypeVar("T")

MAX_PART_BYTES = 4 << 20
"""The size of a request: larger ones would hardly be cheaper per byte."""

DEPTH = 6
"""The number of parts that are held or requested while the reader does not wait for them."""

MAX_DEPTH = 16
"""The number of parts while the reader waits for them: 64 MiB."""

MAX_PROBE_BYTES = 4 << 10
"""The size of a first request outside of the range that will be read as a whole."""

RETRY_S = 300.0
"""How long requests to a failing store are repeated."""

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.25, 15.0


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    stop: int
    content: Future[bytes]


class StoredFile(io.BufferedIOBase):
    """Reads an object at any offset.

    Args:
        stored: the object.
        first_part: the bytes of the first request after every jump; at most ``MAX_PROBE_BYTES`` if
            ``wanted`` is given.
        wanted: the range that will be read as a whole: its first byte, and the byte after it.
    """

    def __init__(
        self, stored: StoredObject, first_part: int, wanted: tuple[int, int] = (0, 0)
    ) -> None:
        self._stored = stored
        self._begin, self._end = wanted[0], min(wanted[1], stored.size)
        share = -(-(self._end - self._begin) // DEPTH)
        self._share = min(max(share, first_part), MAX_PART_BYTES)
        self._first_part = (
            min(first_part, MAX_PROBE_BYTES) if self._begin < self._end else first_part
        )
        self._part = self._first_part
        self._depth = 1
        self._unwaited = 0
        self._parts: deque[_Part] = deque()
        self._position = 0
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(MAX_DEPTH, thread_name_prefix="store")

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stored.size}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def read(self, nbytes: int | None = -1, /) -> bytes:
        """Read the next bytes; fewer only at the end.

        Raises:
            UnreadableFile: the object has changed or is gone, or its store fails.
        """
        left = max(0, self._stored.size - self._position)
        wanted = left if nbytes is None or nbytes < 0 else min(nbytes, left)
        if wanted and (part := self.read_in_place(wanted)) is not None:
            return part[0][part[1] : part[1] + wanted]
        content = bytearray(wanted)
        self.readinto(content)
        return bytes(content)

    def read_in_place(self, nbytes: int, beyond: int = 0) -> tuple[bytes, int] | None:
        """Read the next bytes without a copy: return a part that holds them, and their offset.

        If no part holds all of them and ``beyond`` more bytes, return None and read nothing.

        Raises:
            UnreadableFile: the object has changed or is gone, or its store fails.
        """
        if self._position >= self._stored.size:
            return None
        part = self._part_at(self._position)
        if self._position + nbytes + beyond > part.stop:
            return None
        at = self._position - part.start
        self._position += nbytes
        return part.content.result(), at

    def readinto(self, buffer: Any, /) -> int:
        """Read the next bytes into a buffer, and return their number."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and self._position < self._stored.size:
            part = self._part_at(self._position)
            content = part.content.result()
            at = self._position - part.start
            piece = memoryview(content)[at : at + len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    def close(self) -> None:
        self._closing.set()
        self._parts.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _part_at(self, position: int) -> _Part:
        parts = self._parts
        if parts and parts[0].start <= position < parts[0].stop:
            return parts[0]
        known = self._begin <= position < self._end
        if not parts or not parts[0].start <= position <= parts[-1].stop:
            parts.clear()
            self._part, self._depth = self._first_part, DEPTH if known else 1
            begun = False
        else:
            while parts and parts[0].stop <= position:
                parts.popleft()
            self._part = min(2 * self._part, MAX_PART_BYTES)
            begun = True
        if begun or known:
            self._adapt(waits=not parts or not parts[0].content.done())
        limit = self._end if known else self._stored.size
        part = self._share if known else self._part
        start = parts[-1].stop if parts else position
        while len(parts) < self._depth and start < limit:
            stop = min(start + part, limit)
            parts.append(_Part(start, stop, self._threads.submit(self._fetch, start, stop)))
            start = stop
        return parts[0]

    def _adapt(self, waits: bool) -> None:
        """Request more parts ahead while the reader waits, and fewer after it has not for a while.

        Args:
            waits: whether the reader has to wait for the next part.
        """
        self._unwaited = 0 if waits else self._unwaited + 1
        if waits or self._depth < DEPTH:
            self._depth = min(2 * self._depth, MAX_DEPTH if waits else DEPTH)
        elif self._unwaited > self._depth:
            # It did not wait for any part that was requested since it last did.
            self._depth, self._unwaited = max(self._depth // 2, DEPTH), 0

    def _fetch(self, start: int, stop: int) -> bytes:
        def fetch() -> bytes:
            content = bytes(self._stored.fetch(start, stop))
            if len(content) > stop - start:
                raise UnreadableFile(
                    f"{self._stored.uri}: the store sent {len(content)} bytes instead of"
                    f" {stop - start}; what answers there may be no store"
                )
            if len(content) != stop - start:
                raise ConnectionError(f"the store sent {len(content)} of {stop - start} bytes")
            return content

        return retry_transient(fetch, self._stored.uri, self._closing)


def retry_transient(
    act: Callable[[], T],
    uri: str,
    stop: threading.Event | None = None,
    retry_s: float | None = None,
) -> T:
    """Call a function that makes a request, and repeat it while the store fails.

    Args:
        act: the function.
        uri: the URI, for messages.
        stop: set when the result is no longer needed.
        retry_s: how long the call is repeated; None: for ``RETRY_S``.

    Raises:
        UnreadableFile: the error is permanent, or has lasted for that time.
    """
    until = time.monotonic() + (RETRY_S if retry_s is None else retry_s)
    pause = _FIRST_PAUSE_S
    stop = stop or threading.Event()
    while True:
        try:
            return act()
        except Exception as error:  # a store's client has error types of its own
            late = time.monotonic() + pause > until
            if isinstance(error, RecordError):
                raise
            if late or not is_transient(error) or stop.is_set():
                raise UnreadableFile(f"{uri}: {reason_of(error)}") from error
        # The pauses are random, so that not all readers call a recovering store at the same time.
        stop.wait(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _MAX_PAUSE_S)
