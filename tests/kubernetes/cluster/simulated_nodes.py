"""Nodes without machines: kwok answers for their kubelets, so thousands of pods cost nothing.

They carry the label ``type=kwok`` and a taint; a pod goes there with a toleration of the same key.
"""

from __future__ import annotations

import json
from pathlib import Path

from .layout import API_ADDRESS, Layout
from .sandbox import Sandbox

TAINT = "kwok.x-k8s.io/node"
CAPACITY = {"cpu": "32", "memory": "256Gi", "pods": "110"}


def start(sandbox: Sandbox, layout: Layout, binaries: Path) -> None:
    sandbox.start(
        *("kwok", str(binaries / "kwok"), f"--kubeconfig={layout.inner_kubeconfig('admin')}"),
        *("--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={TAINT}=fake"),
        *("--cidr=10.245.0.0/16", f"--node-ip={API_ADDRESS}", "--node-port=10247"),
        "--server-address=127.0.0.1:10247",
    )


def manifest(count: int) -> str:
    """The nodes, as a JSON list for ``kubectl apply``."""
    return json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [_node(i) for i in range(count)]}
    )


def _node(number: int) -> dict[str, object]:
    name = f"simulated-{number}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {TAINT: "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name},
        },
        "spec": {"taints": [{"key": TAINT, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": CAPACITY, "capacity": CAPACITY},
    }
