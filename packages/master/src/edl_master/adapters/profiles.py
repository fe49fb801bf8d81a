"""Profiles of workers, where TensorBoard's profile plugin looks for them."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

from edl_master.adapters.storage_errors import storage_error
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import replace_file

_MAX_PACKED_NBYTES = 1 << 26
_MAX_UNPACKED_NBYTES = 1 << 28
"""The size limit of a profile: TensorBoard cannot read larger ones in a reasonable time."""

_FEWER = "Profile fewer steps."
_REMEDY = "Profile the steps once more."


class ProfileFiles:
    """Writes the profiles that workers send, in pieces and gzipped.

    Args:
        tensorboard_dir: where the job has its curves.
        run: name of the run in the plugin: that of the job.
    """

    def __init__(self, tensorboard_dir: Path, run: str) -> None:
        self._folder = tensorboard_dir / "plugins" / "profile" / run
        self._lock = threading.Lock()
        self._received: dict[int, bytearray] = {}
        self._written: dict[int, int] = {}  # packed bytes of the last profile, by worker

    def add(self, worker: int, offset: int, content: bytes, *, last: bool) -> Path | None:
        """Take a piece; the one at offset 0 begins the profile anew, and a repeated one is ignored.

        Returns:
            The written file, after the last piece of a worker's first profile. The next ones take
            its place: a worker can make up any number, and each would be an event.

        Raises:
            EdlError: LIMIT_EXCEEDED, DATA_DAMAGED, OUTPUT_UNWRITABLE or DISK_FULL.
        """
        with self._lock:
            end = offset + len(content)
            if offset and worker not in self._received and self._written.get(worker) == end:
                return None  # the last piece, whose reply was lost
            received = self._received.setdefault(worker, bytearray())
            if not offset:
                received.clear()
            if offset > len(received):
                del self._received[worker]
                raise _refusal(ErrorCode.DATA_DAMAGED, worker, "lacks a piece", _REMEDY)
            received[offset:] = content
            if len(received) > _MAX_PACKED_NBYTES:
                del self._received[worker]
                raise _refusal(ErrorCode.LIMIT_EXCEEDED, worker, "is too large", _FEWER)
            if not last:
                return None
            packed = bytes(received)
        try:
            path = self._write(worker, packed)
        finally:
            # Not before: the last piece may be repeated while this one is being written.
            with self._lock:
                self._received.pop(worker, None)
        with self._lock:
            is_first = worker not in self._written
            self._written[worker] = len(packed)
        return path if is_first else None

    def _write(self, worker: int, packed: bytes) -> Path:
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            profile = unpack.decompress(packed, _MAX_UNPACKED_NBYTES)
        except zlib.error as error:
            raise _refusal(
                ErrorCode.DATA_DAMAGED, worker, f"is damaged: {error}", _REMEDY
            ) from None
        if unpack.unconsumed_tail:
            raise _refusal(ErrorCode.LIMIT_EXCEEDED, worker, "is too large", _FEWER)
        if not unpack.eof:
            raise _refusal(ErrorCode.DATA_DAMAGED, worker, "is cut short", _REMEDY)
        path = self._folder / f"worker-{worker}.xplane.pb"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, profile)
        except OSError as error:
            raise storage_error(error, path) from error
        return path


def _refusal(code: ErrorCode.ValueType, worker: int, why: str, remedy: str) -> EdlError:
    return EdlError(code, f"the profile of worker {worker} {why}", where="--profile", remedy=remedy)
