"""A job before it runs: its options' values, and the rules of names and locations."""

from __future__ import annotations

from edl.core import names
from edl.core.locations import scheme
from edl.core.options import kubernetes_value_types
from edl.core.options.value_types import WorkerRange
from edl.core.submission import Submission
from edl.core.submission import build as build_submission

__all__ = [
    "Submission",
    "WorkerRange",
    "build_submission",
    "kubernetes_value_types",
    "names",
    "scheme",
]
