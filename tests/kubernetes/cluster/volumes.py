"""Folders of this machine as claims: no provisioner, and the same files on every real node."""

from __future__ import annotations

import json
from pathlib import Path


def manifest(namespace: str, claim: str, folder: Path) -> str:
    """A volume that is ``folder``, and the claim bound to it, as a JSON list for ``kubectl``."""
    volume = f"{namespace}-{claim}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    items = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **common,
                "capacity": {"storage": "100Gi"},
                "hostPath": {"path": str(folder)},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": claim},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": {
                **common,
                "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
