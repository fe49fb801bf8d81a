"""The command that this package adds to ``edl zoo``."""

from __future__ import annotations

from edl.plugins import CommandEntry

VERIFY = CommandEntry(
    "edl_images.verify_command:verify", "Commands", "check who has signed an image"
)
