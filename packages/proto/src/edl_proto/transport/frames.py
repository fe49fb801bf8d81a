"""Frames of raw streams: a header, then plain bytes of a payload."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from edl_proto.transport.direct_connection import FrameError, IncomingMessage

FRAME_BYTES = 1 << 20
_LENGTH = struct.Struct("<I")

Frames = Iterator[bytes]
"""A header, then pieces of a payload."""

Pieces = Iterator[bytes | memoryview]
"""A header, then pieces of any size; memory is the sender's until the next one is asked for."""


def split(payload: memoryview, frame_bytes: int = FRAME_BYTES) -> Iterator[bytes]:
    """Split a payload into frames."""
    payload = payload.cast("B")
    for start in range(0, len(payload), frame_bytes):
        yield bytes(payload[start : start + frame_bytes])


def delimit(message: bytes) -> bytes:
    """Return a message after its length, as ``messages`` reads it; an empty one is the last."""
    return _LENGTH.pack(len(message)) + message


def messages(frames: Iterator[bytes]) -> Iterator[bytes]:
    """Yield delimited messages, as they come, until the last one.

    Raises:
        FrameError: the frames end before.
    """
    rest = b""

    def read(nbytes: int) -> bytes:
        nonlocal rest
        if isinstance(frames, IncomingMessage):
            frames.fill(memoryview(piece := bytearray(nbytes)))
            return bytes(piece)
        while len(rest) < nbytes:
            if (frame := next(frames, None)) is None:
                raise FrameError(f"the stream ended after {len(rest)} of {nbytes} bytes")
            rest += frame
        found, rest = rest[:nbytes], rest[nbytes:]
        return found

    while (nbytes := _LENGTH.unpack(read(_LENGTH.size))[0]) > 0:
        yield read(nbytes)


def fill(frames: Iterator[bytes], target: memoryview) -> None:
    """Read frames into a preallocated buffer until it is full.

    Raises:
        FrameError: the frames end early or hold more than the buffer.
    """
    target = target.cast("B")
    if isinstance(frames, IncomingMessage):
        frames.fill(target)
        return
    for at, frame in _frames(frames, len(target)):
        target[at : at + len(frame)] = frame


def pieces(frames: Iterator[bytes], nbytes: int, memory: memoryview) -> Iterator[memoryview]:
    """Read ``nbytes`` piece by piece.

    Args:
        frames: what to read from.
        nbytes: how many.
        memory: what may be read into; a piece is gone when the next one is asked for.

    Raises:
        FrameError: the frames end early or hold more.
    """
    if not isinstance(frames, IncomingMessage):
        for _, frame in _frames(frames, nbytes):
            yield memoryview(frame)
        return
    for at in range(0, nbytes, len(memory)):
        piece = memory[: min(len(memory), nbytes - at)]
        frames.fill(piece)
        yield piece


def _frames(frames: Iterator[bytes], nbytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the frames of ``nbytes`` altogether, each with its offset."""
    at = 0
    while at < nbytes:
        frame = next(frames, None)
        if frame is None:
            raise FrameError(f"the stream ended after {at} of {nbytes} bytes")
        if at + len(frame) > nbytes:
            raise FrameError(f"a frame of {len(frame)} bytes at {at} exceeds {nbytes} bytes")
        yield at, frame
        at += len(frame)
