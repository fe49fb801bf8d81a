"""The experiment trackers that jobs can be sent to.

A new tracker is an entry point of the group ``edl.trackers``: a function without arguments that
makes an ``ExperimentTracker`` of ``ports.experiment_tracker``, or says what is not configured.
"""

from __future__ import annotations

from collections.abc import Callable

from edl.core.plugins import PlugIns

TRACKERS: PlugIns[Callable[..., object]] = PlugIns(
    "edl.trackers",
    "tracker",
    Callable,  # type: ignore[arg-type]  # a special form, which isinstance takes all the same
    {"mlflow": "edl-mlflow"},
)
"""Values of ``--tracker``: the function that makes each ``ExperimentTracker``."""
