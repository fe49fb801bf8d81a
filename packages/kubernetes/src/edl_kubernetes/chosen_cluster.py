"""The cluster and namespace that commands work with, and the connection to its API server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edl.plugins.options import ClusterChoice
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable, CredentialsMissing
from edl_kubernetes.refusals import (
    check_namespace,
    no_cluster,
    no_credentials,
    no_service_account,
    refusal,
)
from edl_proto.errors import EdlError, ErrorCode

if TYPE_CHECKING:
    from edl_kubernetes.cluster.api import KubernetesApi

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder of the service account in a pod."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A connection to a namespace.

    Attributes:
        api: the API server.
        cluster: the name of the cluster for messages: the context, or ``this cluster``.
        namespace: the namespace.
        context: the context of the kubeconfig; empty in a pod without one.
    """

    api: KubernetesApi
    cluster: str
    namespace: str
    context: str = ""

    def path(self, resource: str, namespace: str = "") -> str:
        """Return the path of a resource such as ``batch/v1 jobs`` or ``v1 pods``."""
        version, plural = resource.split()
        group = f"apis/{version}" if "/" in version else f"api/{version}"
        return f"/{group}/namespaces/{namespace or self.namespace}/{plural}"


class ChosenCluster:
    """The chosen cluster, to which it connects on first use: importing the client takes seconds.

    Args:
        choice: the chosen cluster; None if the user has chosen none, until ``choose`` is called.
        environ: the environment variables of this process.
    """

    def __init__(
        self, choice: ClusterChoice | None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._choice = choice
        self._environ = environ
        self._connection: ClusterConnection | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether the user has chosen a cluster; without a choice, there are no jobs."""
        return self._choice is not None

    @property
    def has_all_namespaces(self) -> bool:
        """Whether the user has chosen all namespaces."""
        return self._choice is not None and self._choice.everywhere

    @property
    def description(self) -> str:
        """The cluster and namespace for messages, without a connection."""
        choice = self._choice or ClusterChoice()
        named = "/".join(part for part in (choice.context, choice.namespace) if part)
        return f"Kubernetes ({named})" if named else "Kubernetes"

    def choose(self, choice: ClusterChoice) -> None:
        """Work with this cluster from now on."""
        if choice != self._choice:
            self.close()
            self._choice = choice

    def connect(self) -> ClusterConnection:
        """Return the connection, on which nothing was sent yet.

        Raises:
            EdlError: USAGE, FORBIDDEN or CLUSTER_UNAVAILABLE; no cluster is configured.
        """
        if self._connection is None:
            choice = self._choice or ClusterChoice()
            connection = self._open(choice)
            where = "--namespace" if choice.namespace else connection.cluster
            check_namespace(connection.namespace, where)
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Close the connection. Harmless when repeated."""
        if self._connection is not None:
            self._connection.api.close()
            self._connection = None

    def _open(self, choice: ClusterChoice) -> ClusterConnection:
        from kubernetes import config  # importing it takes long

        from edl_kubernetes.cluster.api import KubernetesApi

        files = self._environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
        found = any(os.path.exists(path) for path in files.split(os.pathsep))
        if not found and "KUBERNETES_SERVICE_HOST" in self._environ and not choice.context:
            try:
                api = KubernetesApi.in_cluster()
                own = (_ACCOUNT / "namespace").read_text().strip()
            except (config.ConfigException, OSError) as error:
                raise no_service_account(str(error), str(_ACCOUNT)) from None
            return ClusterConnection(api, "this cluster", choice.namespace or own)
        if not found:
            raise no_cluster(f"there is no kubeconfig {files}", "$KUBECONFIG, ~/.kube/config")
        try:
            contexts, current = config.list_kube_config_contexts(files)
            if choice.context:
                named = [it for it in contexts if it["name"] == choice.context]
                if not named:
                    names = ", ".join(it["name"] for it in contexts)
                    raise EdlError(
                        ErrorCode.USAGE,
                        f"the kubeconfig has no context {choice.context}",
                        where="--context",
                        remedy=f"Its contexts: {names}.",
                    )
                current = named[0]
            api = KubernetesApi.from_kubeconfig(files, current["name"])
        except EdlError:
            raise
        except CredentialsMissing as error:
            raise no_credentials(str(error), files) from None
        except Exception as error:  # a damaged file makes the library raise errors of any type
            reason = " ".join(str(error).split()) or repr(error)
            raise no_cluster(f"the kubeconfig cannot be used: {reason}", files) from None
        namespace = choice.namespace or current["context"].get("namespace") or "default"
        return ClusterConnection(api, current["name"], str(namespace), current["name"])

    def translate(self, error: ApiError | ApiUnavailable, doing: str) -> EdlError:
        """Return the error for users after a failed call.

        Args:
            error: the failure.
            doing: the attempted action, such as ``creating the job``.
        """
        connection = self.connect()
        return refusal(error, doing, connection.cluster, connection.namespace)
