"""The versions that workers run with, as they reported when they registered."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from edl_proto.printable import visible
from edl_runtime.monitoring.installed_versions import NAMES

_MAX_LENGTH = 100
_WORKERS_NAMED = 8


class WorkerEnvironments:
    """The versions that the latest instance of each worker has named, gone workers included.

    A worker runs the code of a model file: other names and long texts are not taken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_worker: dict[int, dict[str, str]] = {}

    def add(self, worker: int, environment: Mapping[str, str]) -> None:
        """Keep the versions that a worker has named when it registered."""
        taken = {
            name: visible(" ".join(environment[name].split()))[:_MAX_LENGTH]
            for name in NAMES
            if environment.get(name)
        }
        with self._lock:
            self._by_worker[worker] = taken

    def summary(self) -> dict[str, str]:
        """Return the versions of all workers by name; where they differ, each with its workers."""
        with self._lock:
            by_worker = dict(sorted(self._by_worker.items()))
        return {name: text for name in NAMES if (text := _versions_of(name, by_worker))}


def _versions_of(name: str, by_worker: Mapping[int, Mapping[str, str]]) -> str:
    workers_of: dict[str, list[int]] = {}
    for worker, environment in by_worker.items():
        if version := environment.get(name):
            workers_of.setdefault(version, []).append(worker)
    if any(len(workers) == len(by_worker) for workers in workers_of.values()):
        return next(iter(workers_of))
    return ", ".join(f"{version} ({_list_of(workers)})" for version, workers in workers_of.items())


def _list_of(workers: list[int]) -> str:
    named = ", ".join(map(str, workers[:_WORKERS_NAMED]))
    more = len(workers) - _WORKERS_NAMED
    return f"worker{'s' * (len(workers) > 1)} {named}{f' and {more} more' if more > 0 else ''}"
