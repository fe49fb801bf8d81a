"""The command that this package adds to ``edl``."""

from __future__ import annotations

from edl.plugins import CommandEntry

TUNE = CommandEntry("edl_tune.cli:tune", "Start a job", "search for the hyperparameters of a model")
