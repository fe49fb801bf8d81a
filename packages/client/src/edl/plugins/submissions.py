"""What a job is before it runs: its options' values, and the rules of names and places."""

from __future__ import annotations

from edl.core import names
from edl.core.locations import scheme
from edl.core.options import cluster_kinds
from edl.core.options.kinds import WorkerRange
from edl.core.submission import Submission

__all__ = ["Submission", "WorkerRange", "cluster_kinds", "names", "scheme"]
