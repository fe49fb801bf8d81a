"""The platforms that jobs run on, and what each needs.

A new platform is an entry point of the group ``edl.platforms``, in this distribution or another,
and a module that implements ``ports.job_backend``.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.plugins import PlugIns


@dataclass(frozen=True, slots=True)
class JobPlatform:
    """A value of ``--platform``.

    Attributes:
        name: the value.
        backend: the function that makes its ``JobBackend``, as ``module:function``.
        runs_in_image: whether its jobs run in a container image, and therefore need one.
    """

    name: str
    backend: str
    runs_in_image: bool


PROCESSES = JobPlatform("processes", "edl.adapters.local.processes:local_processes", False)
DOCKER = JobPlatform("docker", "edl.adapters.local.containers:local_containers", True)

KUBERNETES = "kubernetes"
"""The platform of ``edl-kubernetes``; the option table has the options of its jobs."""

BUILT_IN = {PROCESSES.name: "edl-client", DOCKER.name: "edl-client", KUBERNETES: "edl-kubernetes"}
"""The platforms of edl, and the distribution that has each."""

PLATFORMS = PlugIns("edl.platforms", "platform", JobPlatform, BUILT_IN)
