"""The checksum of TFRecord files."""

from __future__ import annotations

import google_crc32c


def masked_crc(content: bytes) -> int:
    """Return the CRC-32C of some bytes, rotated and shifted as TFRecord files store it."""
    crc = int(google_crc32c.value(content))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
