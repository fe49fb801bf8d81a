"""The logs of a local job: a file for the master, and one for each worker and parameter server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edl.adapters.local.job_log_files import log_files, workers_with_logs
from edl.adapters.log_tail import Tail
from edl.core.job_log import JobLogLine, LogChoice, LogReader, merge_by_time


class LocalJobLogs:
    """A reader of all or some logs of a job."""

    def __init__(self, job_dir: Path, choice: LogChoice) -> None:
        self._job_dir = job_dir
        self._choice = choice
        self._tail = choice.tail
        self._files: dict[str, tuple[Tail, LogReader]] = {}

    def poll(self, final: bool = False) -> Iterator[JobLogLine]:
        for source, path in log_files(self._job_dir).items():
            if source not in self._files and self._choice.includes(source):
                self._files[source] = Tail(path, self._tail), LogReader(source)
        self._tail = None  # a file that appears later is read from its start
        return merge_by_time(
            map(reader.read, tail.read(final=final)) for tail, reader in self._files.values()
        )

    def workers(self) -> list[int]:
        return workers_with_logs(self._job_dir)
