"""The ports to the data of a job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from edl.core.submission import Submission


class DataFiles(Protocol):
    """Files of records, here or in a store."""

    def check_records(self, patterns: Iterable[str], form: str, option: str) -> None:
        """Read all records. Raises: EdlError: the first file that is wrong."""


class DataDescriptions(Protocol):
    """The files next to data that describe its columns."""

    def describe(self, job: Submission, zoo: Path) -> tuple[Submission, str | None]:
        """Return the job with the description of its data, where its model takes one.

        Returns:
            The job, and the place of the description; None if none was used.

        Raises:
            EdlError, Problem: the description cannot be read or does not fit.
        """
