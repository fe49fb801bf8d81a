"""Errors for users, with remedies: the cluster refuses a call, or does not answer."""

from __future__ import annotations

from edl.plugins.submissions import names
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_proto.errors import EdlError, ErrorCode

NEEDED_VERSION = "edl needs Kubernetes 1.31 or later"

_ANONYMOUS = 'User "system:anonymous"'


def no_cluster(what: str, where: str) -> EdlError:
    """Return the error that no cluster is configured."""
    return EdlError(
        ErrorCode.CLUSTER_UNAVAILABLE,
        what,
        where=where,
        remedy="Get a kubeconfig of your cluster, and name it with KUBECONFIG;"
        " kubectl cluster-info shows whether it works.",
    )


def no_credentials(message: str, where: str) -> EdlError:
    """Return the error that the program that gets the credentials failed with a message."""
    return EdlError(
        ErrorCode.FORBIDDEN,
        f"the program that gets your credentials failed{f': {message}' if message else ''}",
        where=where,
        remedy="Log in to the cluster again; kubectl auth whoami shows whether that works.",
    )


def no_service_account(message: str, where: str) -> EdlError:
    """Return the error that the pod of this process has no token of a service account."""
    return EdlError(
        ErrorCode.FORBIDDEN,
        "this pod has no token of a service account",
        where=where,
        remedy="Set automountServiceAccountToken: true in the pod or in its service account, or"
        " name a kubeconfig with KUBECONFIG.",
        detail=message,
    )


def check_namespace(name: str, where: str) -> None:
    """Check a namespace before it becomes part of a path of the API.

    Raises:
        EdlError: USAGE; it cannot be the name of a namespace.
    """
    if fault := names.find_fault(name, names.MAX_NAMESPACE_LENGTH):
        raise EdlError(
            ErrorCode.USAGE,
            f"{name!r} cannot be a namespace: {fault}",
            where=where,
            remedy="kubectl get namespaces lists those of the cluster.",
        )


def no_namespace(cluster: str, namespace: str) -> EdlError:
    """Return the error that the cluster has no such namespace."""
    return EdlError(
        ErrorCode.USAGE,
        f"there is no namespace {namespace}",
        where=f"--namespace, {cluster}",
        remedy="kubectl get namespaces lists those of the cluster.",
    )


def refusal(error: ApiError | ApiUnavailable, doing: str, cluster: str, namespace: str) -> EdlError:
    """Return the error for users after a failed call of the API server.

    Args:
        error: the failure.
        doing: the attempted action, such as ``creating the job``.
        cluster: the name of the cluster, for messages.
        namespace: the namespace of the call.
    """
    where = f"{cluster}/{namespace}"
    if isinstance(error, ApiUnavailable) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return EdlError(
            ErrorCode.CLUSTER_UNAVAILABLE,
            "the certificate of the cluster's API server is not trusted",
            where=where,
            remedy="Get a new kubeconfig: this one lacks the certificate authority of the cluster,"
            " or names another one; --context chooses another cluster.",
            detail=str(error),
        )
    if isinstance(error, ApiUnavailable):
        return EdlError(
            ErrorCode.CLUSTER_UNAVAILABLE,
            f"the cluster does not answer ({doing})",
            where=where,
            remedy="Check the network, and the address in your kubeconfig: kubectl cluster-info;"
            " --context chooses another cluster.",
            detail=str(error),
        )
    code, remedy = _classify(error, namespace)
    if error.status == 401:
        what = "the cluster does not accept your credentials"
    elif _ANONYMOUS in error.message:
        what = "the cluster got no credentials from your kubeconfig"
    else:
        what = f"the cluster refuses {doing}: {error.message}"
    return EdlError(code, what, where=where, remedy=remedy)


def _classify(error: ApiError, namespace: str) -> tuple[ErrorCode.ValueType, str]:
    """Return the code and the remedy for a refused call."""
    message = error.message
    if error.status == 401:
        return (
            ErrorCode.FORBIDDEN,
            "They may have expired: log in to the cluster again; kubectl auth whoami shows"
            " whether they work.",
        )
    if "exceeded quota" in message or "failed quota" in message:
        return ErrorCode.LIMIT_EXCEEDED, quota_remedy(message, namespace)
    for words, code, remedy in _REMEDIES:
        if words in message:
            return code, remedy.format(namespace=namespace)
    if error.status == 403 and "is forbidden" in message and "namespaces" not in message:
        return (
            ErrorCode.FORBIDDEN,
            "Ask a cluster administrator for the role edl-submitter (deploy/kubernetes), or choose"
            " another --namespace.",
        )
    if error.status == 404 and f'namespaces "{namespace}"' in message:
        return ErrorCode.USAGE, "kubectl get namespaces lists those of the cluster."
    if error.reason == "AlreadyExists":
        return ErrorCode.JOB_EXISTS, "Choose another --name: edl has not made this object."
    if error.status in (400, 422):
        return ErrorCode.USAGE, "Correct the option or the pod template that the message names."
    return ErrorCode.CLUSTER_UNAVAILABLE, "kubectl get events may show the reason."


def quota_remedy(message: str, namespace: str) -> str:
    """Return the remedy for a quota that refuses an object, by the resources that are exhausted.

    Args:
        message: the server's message, such as ``exceeded quota: q, requested: secrets=1,
            used: secrets=9, limited: secrets=9``.
        namespace: the namespace of the object.
    """
    advice = f"kubectl --namespace {namespace} describe quota shows what is left."
    if "failed quota" in message:  # such as: must specify limits.cpu for: edl
        return (
            "Give all pods what the quota counts, with --master-resources, --worker-resources and"
            f" --server-resources, such as limits.cpu=2; {advice}"
        )
    requested = message.partition("requested: ")[2].partition(", used:")[0]
    short = [part.partition("=")[0] for part in requested.split(",") if part]
    objects = [name.removeprefix("count/") for name in short if _counts_objects(name)]
    remedies = []
    if objects:
        kinds = " and ".join(name.partition(".")[0] for name in objects)
        remedies.append(
            f"The namespace may have no more {kinds}: delete jobs that are over (edl list, edl"
            " delete), or ask for a larger quota"
        )
    if any(_is_of_claims(name) for name in short):
        remedies.append(
            "Ask for a smaller --state-volume, or name a claim that exists: --state-volume CLAIM"
        )
    if "pods" in short or "count/pods" in short:
        remedies.append("Ask for fewer pods with --num-workers and --parameter-servers")
    if len(remedies) == 0 or any(_is_of_pods(name) for name in short):
        remedies.append(
            "Ask for less with --master-resources, --worker-resources, --server-resources or"
            " --num-workers"
        )
    return f"{'. '.join(remedies)}; {advice}"


def _counts_objects(name: str) -> bool:
    """Return whether a quota's resource is a number of objects other than pods and claims."""
    kind = name.removeprefix("count/").partition(".")[0]
    return kind in ("secrets", "configmaps", "services", "jobs", "ingresses", "leases")


def _is_of_claims(name: str) -> bool:
    """Return whether a quota's resource is the number or the size of claims, even of one class."""
    return name.endswith(("persistentvolumeclaims", "requests.storage"))


def _is_of_pods(name: str) -> bool:
    """Return whether a quota's resource is one that pods request, such as processors."""
    plain = name.partition(".")[2] if name.startswith(("requests.", "limits.")) else name
    is_device = "/" in plain and not (name.startswith("count/") or _is_of_claims(name))
    return plain in ("cpu", "memory", "ephemeral-storage") or is_device


_LIMIT_RANGE = (
    "Change --master-resources, --worker-resources or --server-resources;"
    " kubectl --namespace {namespace} describe limitrange shows what is allowed."
)
_REMEDIES = (
    ('"spec.successPolicy"', ErrorCode.USAGE, f"{NEEDED_VERSION}; --context chooses another one."),
    (
        _ANONYMOUS,
        ErrorCode.FORBIDDEN,
        "The context has no user, or the program that gets the user's credentials failed: log in"
        " to the cluster again; kubectl auth whoami shows whether that works.",
    ),
    (
        "at the cluster scope",
        ErrorCode.FORBIDDEN,
        "Choose one namespace with --namespace, or ask a cluster administrator for the role"
        " edl-viewer (deploy/kubernetes).",
    ),
    (
        "HTTP request to an HTTPS server",
        ErrorCode.CLUSTER_UNAVAILABLE,
        "The address of the cluster in your kubeconfig must begin with https://.",
    ),
    (" usage per ", ErrorCode.LIMIT_EXCEEDED, _LIMIT_RANGE),
    (
        "violates PodSecurity",
        ErrorCode.FORBIDDEN,
        "Remove from the pod template what the namespace forbids.",
    ),
    (
        "no PriorityClass with name",
        ErrorCode.USAGE,
        "kubectl get priorityclasses lists those of the cluster.",
    ),
)
"""Words of refusals, the most important first, with code and remedy."""
