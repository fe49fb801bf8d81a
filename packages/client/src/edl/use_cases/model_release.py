"""Writes the model of a running job again and again, each time into a folder of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edl import codec
from edl.core.job_status import JobState
from edl.core.platforms import KUBERNETES
from edl.core.problem import usage
from edl.core.releases import find_outdated, next_number
from edl.ports.release_folder import ReleaseFolder
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_watcher import JobDisplay
from edl.use_cases.model_export import export_model
from edl_proto.errors import EdlError

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Release:
    """A model that was written.

    Attributes:
        number: of its folder.
        place: its folder.
        version: of its parameters.
        removed: the numbers of older releases that were removed.
    """

    number: int
    place: str
    version: int
    removed: tuple[int, ...]


class ModelReleaser:
    """Releases the models of a job until it is over, its trained model last.

    Args:
        catalog: has the job.
        name: of the job.
        folder: of the releases.
        display: of the exports.
        every_s: seconds between the beginnings of two releases.
        keep: releases that stay; 0: all.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        catalog: JobCatalog,
        name: str,
        folder: ReleaseFolder,
        display: JobDisplay,
        *,
        every_s: float,
        keep: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._catalog, self._name, self._folder, self._display = catalog, name, folder, display
        self._every_s, self._keep, self._sleep = every_s, keep, sleep

    def run(self) -> Iterator[Release]:
        """Release whenever the time has come and the job has trained more; yield each release.

        Raises:
            EdlError: there is no such job, it runs where this machine cannot see the folder, or a
                model cannot be written.
        """
        backend = self._catalog.find(self._name)
        if backend.platform == KUBERNETES and "://" not in self._folder.place_of(1):
            raise codec.error_of(
                usage(
                    "the pods of a job do not write into a folder of this machine",
                    where="--to",
                    remedy="Name a place in a store: --to s3://bucket/releases",
                )
            )
        released, due = 0, 0.0
        while not (report := backend.status(self._name)).is_over:
            version = report.status.saved_version
            if version and version > released and due <= 0:
                try:
                    release = self._release()
                except EdlError:
                    if not backend.status(self._name).is_over:
                        raise
                    continue  # the job has ended meanwhile
                released, due = release.version, self._every_s
                yield release
                continue
            self._sleep(_POLL_S)
            due -= _POLL_S
        if report.status.state is JobState.SUCCEEDED and report.status.output:
            numbers, output = self._folder.list(), report.status.output
            if not numbers or not self._folder.has(numbers[-1], output):
                self._folder.add(next_number(numbers), output)
                yield self._describe(next_number(numbers), report.status.version)

    def _release(self) -> Release:
        number = next_number(self._folder.list())
        place = self._folder.place_of(number)
        status = export_model(self._catalog, self._name, place, self._display)
        if status.failure is not None:
            raise codec.error_of(status.failure)
        return self._describe(number, status.version)

    def _describe(self, number: int, version: int) -> Release:
        removed = find_outdated(self._folder.list(), self._keep)
        for old in removed:
            self._folder.remove(old)
        return Release(number, self._folder.place_of(number), version, tuple(removed))
