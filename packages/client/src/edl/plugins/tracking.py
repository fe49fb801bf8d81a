"""The port of experiment trackers, and the values that pass through it."""

from __future__ import annotations

from edl.core.tracking import KerasModel, Measurement, RunEnd
from edl.ports.experiment_tracker import ExperimentTracker, TrackerUnavailable

__all__ = ["ExperimentTracker", "KerasModel", "Measurement", "RunEnd", "TrackerUnavailable"]
