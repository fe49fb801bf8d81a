"""The logs of a local job: a file for the master, and one for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edl.adapters.job_log_files import log_file, workers_with_logs
from edl.adapters.log_tail import Tail
from edl.core.job_backend import JobLogLine


class LocalJobLogs:
    """Reads all or some logs of a job; see ``JobBackend.logs`` for the arguments."""

    def __init__(
        self, job_dir: Path, *, master: bool, worker: int | None, tail: int | None
    ) -> None:
        self._job_dir = job_dir
        self._master = master
        self._worker = worker
        self._tail = tail
        self._tails: dict[str, Tail] = {}

    def poll(self, final: bool = False) -> Iterator[JobLogLine]:
        for source, path in self._files().items():
            if source not in self._tails:
                self._tails[source] = Tail(path, self._tail)
            for text in self._tails[source].read(final=final):
                yield JobLogLine(source, text)
        self._tail = None  # a file that appears later is read from its start

    def workers(self) -> list[int]:
        return workers_with_logs(self._job_dir)

    def _files(self) -> dict[str, Path]:
        if self._worker is not None:
            numbers = [self._worker]
        elif self._master:
            numbers = []
        else:
            numbers = self.workers()
        files = {} if self._worker is not None else {"master": log_file(self._job_dir)}
        return files | {f"worker {it}": log_file(self._job_dir, it) for it in numbers}
