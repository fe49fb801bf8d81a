"""The common part of the placements of processes and of containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edl import codec
from edl.core.submission import Submission
from edl_proto.v1 import job_pb2


class LocalPlacement:
    """A job of this machine is checked here, and its manifest is its specification.

    Args:
        encode: makes the specification.
    """

    def __init__(self, encode: Callable[[Submission], job_pb2.JobSpec]) -> None:
        self._encode = encode

    def check(self, job: Submission) -> None:
        # They read data with numpy, whose import takes longer than most commands.
        from edl.adapters.local import preflight_checks

        preflight_checks.check(job)

    def describe(self, job: Submission) -> Mapping[str, Any]:
        return codec.to_dict(self._encode(job))

    def manifest(self, job: Submission) -> Mapping[str, Any]:
        return self.describe(job)
