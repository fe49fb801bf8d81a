"""Kueue in the test cluster: the manifests of its own Go module, and a manager built from it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.go_programs import GoPrograms

from . import images
from .cluster import Cluster
from .sandbox import wait_until

NAMESPACE = "kueue-system"
MANAGER = "deployment/kueue-controller-manager"
_MODULE = "sigs.k8s.io/kueue"
_IMAGE = "localhost/kueue:1"
_PROGRAMS = GoPrograms(
    name="kueue",
    module=Path(__file__).parent / "kueue_module",
    packages={"kueue": f"{_MODULE}/cmd/kueue"},
)
_CONTAINER = "/spec/template/spec/containers/0"
_PATCHES = [
    {"op": "replace", "path": f"{_CONTAINER}/image", "value": _IMAGE},
    {"op": "replace", "path": f"{_CONTAINER}/imagePullPolicy", "value": "Never"},
    # The first probe would be after five seconds, and the next one ten seconds later.
    {"op": "replace", "path": f"{_CONTAINER}/readinessProbe/initialDelaySeconds", "value": 1},
    {"op": "replace", "path": f"{_CONTAINER}/readinessProbe/periodSeconds", "value": 1},
    {"op": "add", "path": "/spec/template/spec/securityContext/runAsUser", "value": 65532},
    {
        "op": "add",
        "path": f"{_CONTAINER}/args/-",
        "value": "--feature-gates=VisibilityOnDemand=false",
    },
]


def build() -> Path:
    """Return the folder with the manager; the first call on a machine takes minutes."""
    return _PROGRAMS.build()


@contextlib.contextmanager
def install(cluster: Cluster) -> Iterator[None]:
    """Run Kueue in its default configuration until the end of the block."""
    with tempfile.TemporaryDirectory(dir=cluster.layout.root) as folder:
        _import_image(cluster, Path(folder))
        overlay = _write_overlay(Path(folder))
        # Some objects do not fit into the annotation that apply uses on the client's side.
        cluster.kubectl("apply", "--server-side", "--kustomize", str(overlay))
        try:
            _mount_certificate(cluster)
            cluster.kubectl("-n", NAMESPACE, "rollout", "status", MANAGER, "--timeout=300s")
            yield
        finally:
            # What belongs to a namespace may go with it before kubectl asks for it.
            lenient = ("--ignore-not-found", "--wait=false")
            cluster.kubectl("delete", "--kustomize", str(overlay), *lenient)


def _import_image(cluster: Cluster, folder: Path) -> None:
    root, archive = folder / "root", folder / "kueue.tar"
    root.mkdir()
    shutil.copy(build() / "kueue", root / "manager")
    images.pack(root, _IMAGE, archive, ["/manager"])
    cluster.import_image(archive)


def _write_overlay(folder: Path) -> Path:
    _PROGRAMS.go("mod", "download", _MODULE)
    source = _PROGRAMS.go("list", "-mod=readonly", "-m", "-f", "{{.Dir}}", _MODULE)
    overlay = folder / "overlay"
    overlay.mkdir()
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(f"{source}/config/default", overlay)],
        "patches": [
            {"target": {"kind": "Deployment"}, "patch": json.dumps(_PATCHES)},
            # The cluster's API server forwards no requests to others.
            *({"patch": json.dumps(each | {"$patch": "delete"})} for each in _find_api_services()),
        ],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return overlay


def _find_api_services() -> Iterator[dict[str, object]]:
    for version in ("v1beta1", "v1beta2"):
        name = {"name": f"{version}.visibility.kueue.x-k8s.io"}
        yield {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": name}


def _mount_certificate(cluster: Cluster) -> None:
    """Wait for the certificate that the manager makes for itself, and have the kubelet mount it.

    The kubelet looks at a Secret about once a minute, and whenever the pod changes.
    """
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
    wait_until(lambda: bool(cluster.api.get(secret).get("data")), "Kueue's certificate")
    pods = ("annotate", "pods", "--all", "example.com/changed=true", "--overwrite")
    cluster.kubectl("-n", NAMESPACE, *pods)
