"""The tracker ``lines``: writes what happens to jobs into the file that EXAMPLE_LINES names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from edl.plugins.errors import EdlError, ErrorCode
from edl.plugins.tracking import KerasModel, Measurement, RunEnd, TrackerUnavailable


def from_environment() -> LinesTracker:
    """Return the tracker.

    Raises:
        EdlError: EXAMPLE_LINES is not set.
    """
    if file := os.environ.get("EXAMPLE_LINES"):
        return LinesTracker(Path(file))
    raise EdlError(
        ErrorCode.USAGE, "EXAMPLE_LINES is not set", where="--tracker", remedy="Name a file."
    )


class LinesTracker:
    """An experiment tracker whose run is a file of lines."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _write(self, text: str) -> None:
        try:
            with self._file.open("a") as lines:
                lines.write(f"{text}\n")
        except OSError as error:
            raise TrackerUnavailable(str(error)) from None

    def open(self, job: str, submitted_at: str, started_at_s: float) -> str:
        self._write(f"job {job}")
        return str(self._file)

    def log_parameters(self, parameters: Mapping[str, str]) -> None:
        self._write(f"parameters {len(parameters)}")

    def last_steps(self) -> Mapping[str, int]:
        return {}

    def log_metrics(self, measurements: Sequence[Measurement]) -> None:
        for one in measurements:
            self._write(f"metric {one.name} {one.value}")

    def has_model(self, version: int) -> bool:
        return True

    def log_model(self, model: KerasModel) -> None:
        """This file takes no models."""

    def end(self, end: RunEnd, at_s: float) -> None:
        self._write(f"end {end.name}")
