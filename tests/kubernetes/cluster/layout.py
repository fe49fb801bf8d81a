"""The cluster's files and the addresses of its network."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

API_PORT = 6443
API_ADDRESS = "10.250.0.1"
"""An endpoint's address must not be of 127.0.0.0/8."""
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE_ADDRESS = "10.96.0.1"
"""Kubernetes gives it to the API server."""
DNS_ADDRESS = "10.96.0.10"
POD_RANGE = "10.244.0.0/16"


@dataclass(frozen=True)
class Layout:
    """Where one cluster keeps its state; ``down`` removes all of it."""

    root: Path

    @property
    def certificates(self) -> Path:
        return self.root / "certificates"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def state(self) -> Path:
        """The running processes, as JSON, for ``down`` and for faults."""
        return self.root / "state.json"

    @property
    def owner(self) -> Path:
        """The process with which the cluster ends; empty if it stays."""
        return self.root / "owner"

    @property
    def kubeconfig(self) -> Path:
        """The configuration of clients on this machine."""
        return self.root / "kubeconfig"

    def inner_kubeconfig(self, user: str) -> Path:
        """Return the configuration of a component within the namespaces."""
        return self.root / f"{user}.kubeconfig"

    @property
    def cgroup(self) -> str:
        """The parent of all pods' control groups, one name per cluster."""
        return f"edl-cluster-{zlib.crc32(bytes(self.root)):08x}"


@dataclass(frozen=True)
class NodeAddress:
    """Name and addresses of the real node with a number from 1 to 9."""

    number: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def address(self) -> str:
        return f"10.250.0.{self.number}"

    @property
    def pod_range(self) -> str:
        return f"10.244.{4 * (self.number - 1)}.0/22"
