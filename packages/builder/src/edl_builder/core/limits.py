"""Limits of the build service."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.build import BuildLimits


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of one service.

    Attributes:
        builds: of the queue.
        archive: of archives and unpacked zoos.
        log_nbytes: of the log of one build.
        keep_images: how many finished images the engine keeps as a cache.
    """

    builds: BuildLimits
    archive: ArchiveLimits
    log_nbytes: int
    keep_images: int
