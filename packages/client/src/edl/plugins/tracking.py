"""The port of experiment trackers, and the values that pass through it."""

from __future__ import annotations

from edl.core.tracking import (
    ExperimentTracker,
    KerasModel,
    Measurement,
    RunEnd,
    TrackerUnavailable,
)

__all__ = ["ExperimentTracker", "KerasModel", "Measurement", "RunEnd", "TrackerUnavailable"]
