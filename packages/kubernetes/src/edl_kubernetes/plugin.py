"""The platform that this package adds to edl."""

from __future__ import annotations

from edl.plugins import JobPlatform

KUBERNETES = JobPlatform("kubernetes", "edl_kubernetes.backend:kubernetes_jobs", True)
