"""The usage of tenants on the current day, which survives restarts."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from edl_builder.core.identifiers import Caller
from edl_builder.core.quota import DailyUsage, Quota, Usage
from edl_runtime.files import replace_file

log = logging.getLogger(__name__)


class UsageStore:
    """The usage of a day behind its lock and in its file; only tenants with a quota are in it.

    Args:
        path: of the file.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._usage = _read(path)

    def begin(self, tenant: Caller, quota: Quota) -> None:
        """Count a build. Raises: BuilderError: LIMIT, if a quota is used up."""
        if quota == Quota():
            return
        with self._lock:
            self._usage.check(tenant, quota, self._clock())
            self._usage.count_build(tenant, self._clock())
            self._write()

    def add_bytes(self, tenant: Caller, quota: Quota, nbytes: int) -> None:
        """Count bytes of an archive. Raises: BuilderError: LIMIT, if they are too many."""
        if quota == Quota():
            return
        with self._lock:
            used = self._usage.usage(tenant, self._clock())
            used.nbytes += nbytes
            if quota.nbytes and used.nbytes > quota.nbytes:
                self._usage.check(tenant, Quota(nbytes=quota.nbytes), self._clock())

    @contextlib.contextmanager
    def count_time(self, tenant: Caller) -> Iterator[None]:
        """Count the time that a context takes."""
        begin = time.monotonic()
        try:
            yield
        finally:
            minutes = (time.monotonic() - begin) / 60
            with self._lock:
                if tenant in self._usage.usages:
                    self._usage.usage(tenant, self._clock()).minutes += minutes
                    self._write()

    def _write(self) -> None:
        found = {
            "day": self._usage.day,
            "usages": {tenant: asdict(used) for tenant, used in self._usage.usages.items()},
        }
        try:
            replace_file(self._path, json.dumps(found).encode())
        except OSError as error:
            log.error("%s cannot be written: %s", self._path, error)


def _read(path: Path) -> DailyUsage:
    try:
        found = json.loads(path.read_text("utf-8"))
        usages = {Caller(tenant): Usage(**used) for tenant, used in found["usages"].items()}
        return DailyUsage(int(found["day"]), usages)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return DailyUsage()
