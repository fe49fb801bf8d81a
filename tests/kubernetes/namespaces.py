"""A namespace for the jobs of one test, with the account of its masters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edl_kubernetes.cluster import objects

_RBAC = "rbac.authorization.k8s.io"


def make_objects(name: str, rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the namespace and, in it, the account of masters and what it may do."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    metadata = {"name": objects.MASTER_ACCOUNT}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", **metadata},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    return [namespace, account, role, binding]
