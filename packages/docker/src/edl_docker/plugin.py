"""The platform that this package adds to edl."""

from __future__ import annotations

from edl.plugins import JobPlatform

DOCKER = JobPlatform(
    "docker", "edl_docker.backend:local_containers", True, "edl_docker.diagnosis:examine"
)
