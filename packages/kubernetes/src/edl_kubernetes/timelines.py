"""Reads the timelines of jobs: what each worker did when."""

from __future__ import annotations

from collections.abc import Sequence

from edl.plugins.job_status import TimelineSpan
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.master_links import MasterLinks, fall_back_to_record


class ClusterTimelines:
    """The ``JobTimelines`` of a cluster: spans from the master, or the last from the record."""

    def __init__(self, job_objects: JobObjects, links: MasterLinks) -> None:
        self._objects = job_objects
        self._links = links

    def read(self, name: str) -> Sequence[TimelineSpan]:
        job = self._objects.read(name)
        if not job.status().state.is_over:
            with fall_back_to_record():
                self._links.connect(job)
                return self._links.call(name, lambda it: it.timeline())
        return job.timeline()
