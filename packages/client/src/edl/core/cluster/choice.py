"""Which cluster a command works with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster and namespace; empty: as the kubeconfig, or the pod's service account, says.

    Attributes:
        everywhere: look at the jobs of all namespaces.
    """

    context: str = ""
    namespace: str = ""
    everywhere: bool = False
