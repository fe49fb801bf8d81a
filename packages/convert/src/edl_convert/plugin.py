"""The commands that this package adds to ``edl data``."""

from __future__ import annotations

from edl.plugins import CommandEntry

_SECTION = "Commands"

CONVERT = CommandEntry(
    "edl_convert.cli:convert", _SECTION, "convert tables and images to RecordIO files"
)
INSPECT = CommandEntry(
    "edl_convert.cli:inspect", _SECTION, "show format, size and first record of files"
)
