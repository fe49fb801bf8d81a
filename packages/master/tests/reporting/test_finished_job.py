"""What the directory of a job tells without its master."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl_master.adapters.job_directory import JobDirectory
from edl_master.adapters.timeline_file import TimelineFile
from edl_master.core.identifiers import WorkerId
from edl_master.core.timeline import PhaseSpan
from edl_master.core.timeline_summary import JobTimes
from edl_master.reporting.finished_job import FinishedJob
from edl_master.reporting.timeline_lines import to_lines
from edl_runtime.local import job_directory


@pytest.fixture
def finished(tmp_path: Path) -> FinishedJob:
    (tmp_path / job_directory.SPEC).write_text('{"name": "digits"}')
    return FinishedJob(JobDirectory(tmp_path))


def test_times_come_from_both_files_of_the_timeline(finished: FinishedJob, tmp_path: Path) -> None:
    assert finished.times() == JobTimes(), "no timeline, or none yet"
    file = TimelineFile(tmp_path, max_nbytes=100)
    for at in (0.0, 1.0, 2.0):
        file.append(to_lines([PhaseSpan(at, 1.0, WorkerId(0), {"compute": 1.0})]))
    assert (tmp_path / job_directory.FORMER_TIMELINE).exists()
    assert (tmp_path / job_directory.TIMELINE).exists()
    (times,) = finished.times().workers
    assert times.seconds["compute"] == 3.0
