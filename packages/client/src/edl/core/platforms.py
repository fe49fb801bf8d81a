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
        examine: the function that yields what ``edl doctor`` says about the platform on this
            machine, as ``module:function``; it gets the options that settings give, by name.
    """

    name: str
    backend: str
    runs_in_image: bool
    examine: str = ""


PROCESSES = JobPlatform("processes", "edl.adapters.local.processes:local_processes", False)

DOCKER, KUBERNETES = "docker", "kubernetes"
"""The platforms of ``edl-docker`` and ``edl-kubernetes``; the option table has their options."""

BUILT_IN = {PROCESSES.name: "edl-client", DOCKER: "edl-docker", KUBERNETES: "edl-kubernetes"}
"""The platforms of edl, and the distribution that has each."""

PLATFORMS = PlugIns("edl.platforms", "platform", JobPlatform, BUILT_IN)
