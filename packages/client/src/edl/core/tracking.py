"""The parameters, metrics and end of a job, as experiment trackers receive them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from edl.core.job_status import JobState
from edl_runtime.public_settings import public_settings
from edl_runtime.timestamps import parse_rfc3339

_PLACES_OF_FILES = ("job_dir", "submitted_at", "containers", "kubernetes")
"""What says how the job's files and pods are made; pods may have secrets in their variables."""

_NOT_IN_NAMES = re.compile(r"[^\w\-. /:]")


class RunEnd(StrEnum):
    """The way in which a run ended."""

    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of a metric at a parameter version.

    Attributes:
        step: the parameter version.
        at_s: time of the measurement in seconds since the epoch.
    """

    name: str
    value: float
    step: int
    at_s: float


@dataclass(frozen=True, slots=True)
class KerasModel:
    """A trained model as a file of Keras.

    Attributes:
        file: the ``.keras`` file on this machine.
        version: parameter version.
        versions: of the libraries that wrote it, by name: keras, tensorflow, python.
    """

    file: Path
    version: int
    versions: Mapping[str, str]


def parameters(description: Mapping[str, Any]) -> dict[str, str]:
    """Return a job's options by their dotted names, without empty values and passwords.

    Args:
        description: as ``JobPlacement.describe`` gives it.
    """
    return public_settings(description, _PLACES_OF_FILES)


def started_at_s(details: Mapping[str, Any]) -> float | None:
    """Return when a job started, in seconds since the epoch; None if it has not.

    Args:
        details: as ``StatusReport.details`` gives them.
    """
    return parse_rfc3339(str(details.get("started_at") or ""))


def measurements(details: Mapping[str, Any], after: Mapping[str, int]) -> list[Measurement]:
    """Return all that has been measured of a job so far.

    The curves of a job have at most some hundred points: where a job is long, a point is the mean
    of neighbours.

    Args:
        details: as ``StatusReport.details`` gives them.
        after: steps of metrics, up to which measurements are not wanted.
    """
    start = started_at_s(details)
    if start is None:
        return []
    found = [
        Measurement(
            metric_name(str(curve["name"])),
            float("nan" if point["value"] is None else point["value"]),
            int(point["step"]),
            start + float(point["at_s"]),
        )
        for curve in details.get("curves") or ()
        for point in curve["points"]
    ]
    progress = details.get("progress") or {}
    at, step = start + float(details.get("seconds") or 0.0), progress.get("parameter_version") or 0
    for name in ("epoch", "records_per_s", "mean_records_per_s"):
        if (value := progress.get(name)) and step:
            found.append(Measurement(name, float(value), int(step), at))
    return [one for one in found if math.isfinite(one.value) and one.step > after.get(one.name, -1)]


def metric_name(name: str) -> str:
    """Return a name that trackers accept."""
    return _NOT_IN_NAMES.sub("_", name)


def run_end(state: JobState) -> RunEnd:
    """Return how the run of a job that is over has ended."""
    match state:
        case JobState.SUCCEEDED:
            return RunEnd.FINISHED
        case JobState.CANCELLED:
            return RunEnd.KILLED
        case _:
            return RunEnd.FAILED
