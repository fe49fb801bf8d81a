"""The command that this package adds to ``edl``."""

from __future__ import annotations

from edl.plugins import CommandEntry

SERVE = CommandEntry(
    "edl_serve.cli:serve", "Commands", "answer predictions of a trained model over HTTP"
)
