"""The cluster and namespace that commands work with, and the connection to its API server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edl.plugins.options import ClusterChoice
from edl_kubernetes.refusals import (
    check_namespace,
    no_cluster,
    no_credentials,
    no_service_account,
    refusal,
)
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.kubernetes.api_errors import ApiError, ApiUnavailable, CredentialsMissing

if TYPE_CHECKING:
    from edl_runtime.kubernetes.api import KubernetesApi

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its service account."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A connection to a namespace.

    Attributes:
        cluster: name for messages: the context, or ``this cluster``.
        context: of the kubeconfig; empty in a pod without one.
    """

    api: KubernetesApi
    cluster: str
    namespace: str
    context: str = ""

    def place(self, kind: str, namespace: str = "") -> str:
        """The path of a kind of objects, such as ``batch/v1 jobs`` or ``v1 pods``."""
        version, plural = kind.split()
        group = f"apis/{version}" if "/" in version else f"api/{version}"
        return f"/{group}/namespaces/{namespace or self.namespace}/{plural}"


class ClusterSession:
    """Connects when it is first needed: importing the client of Kubernetes takes seconds.

    Args:
        choice: None if the user has chosen no cluster; ``choose`` does later.
    """

    def __init__(
        self, choice: ClusterChoice | None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._choice = choice
        self._environ = environ
        self._connection: ClusterConnection | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether the user has asked for a cluster; otherwise none is looked for."""
        return self._choice is not None

    @property
    def is_everywhere(self) -> bool:
        """Whether jobs of all namespaces are looked at."""
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
        """The connection; nothing is sent yet.

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
        """Release the connection. Harmless when repeated."""
        if self._connection is not None:
            self._connection.api.close()
            self._connection = None

    def _open(self, choice: ClusterChoice) -> ClusterConnection:
        from kubernetes import config  # importing it takes long

        from edl_runtime.kubernetes.api import KubernetesApi

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
        except Exception as error:  # the library raises whatever a damaged file leads to
            reason = " ".join(str(error).split()) or repr(error)
            raise no_cluster(f"the kubeconfig cannot be used: {reason}", files) from None
        namespace = choice.namespace or current["context"].get("namespace") or "default"
        return ClusterConnection(api, current["name"], str(namespace), current["name"])

    def translate(self, error: ApiError | ApiUnavailable, doing: str) -> EdlError:
        """What a user sees of a failed call.

        Args:
            doing: what was tried, such as ``creating the job``.
        """
        connection = self.connect()
        return refusal(error, doing, connection.cluster, connection.namespace)
