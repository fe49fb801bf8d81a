"""The experiment trackers that edl knows.

A new tracker is an entry here and its adapter: a module that implements ``core.tracking``.
"""

from __future__ import annotations

from collections.abc import Mapping

TRACKERS: Mapping[str, str] = {"mlflow": "edl_mlflow.tracker:from_environment"}
"""Values of ``--tracker``: the function that makes each ``ExperimentTracker``."""
