"""The message that goes with a member's numbers: their weight, and a note; of one size for all."""

from __future__ import annotations

import struct

from edl_worker.core.collectives import NOTE_BYTES

_HEADER = struct.Struct("<dI")  # the weight, and the length of the note

MESSAGE_BYTES = _HEADER.size + NOTE_BYTES


def pack_message(weight: float, note: bytes) -> bytes:
    """Return a message. Raises: ValueError: the note is too long."""
    if len(note) > NOTE_BYTES:
        raise ValueError(f"a note of {len(note)} bytes")
    return (_HEADER.pack(weight, len(note)) + note).ljust(MESSAGE_BYTES, b"\0")


def unpack_message(message: bytes) -> tuple[float, bytes]:
    """Return the weight and the note of a message."""
    weight, length = _HEADER.unpack_from(message)
    return weight, message[_HEADER.size : _HEADER.size + length]
