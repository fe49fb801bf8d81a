"""What kubectl honours in a kubeconfig and the official client does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.config.kube_config import KubeConfigMerger

Header = tuple[str, str]

USER_FIELDS = frozenset(
    (
        *("as", "as-groups", "as-uid", "as-user-extra", "auth-provider"),
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
        *("exec", "extensions", "password", "token", "tokenFile", "username"),
    )
)
CLUSTER_FIELDS = frozenset(
    (
        *("certificate-authority", "certificate-authority-data", "disable-compression"),
        *("extensions", "insecure-skip-tls-verify", "proxy-url", "server", "tls-server-name"),
    )
)
_AUTH_PROVIDERS = ("gcp", "oidc")
"""The providers that the official client knows. It would send requests without credentials for
others."""


def complete(
    configuration: client.Configuration, files: str, context: str | None
) -> tuple[Header, ...]:
    """Give a configuration the fields of a kubeconfig that the official client leaves out.

    Args:
        configuration: what the client has made of the same context.
        files: paths, separated as in ``KUBECONFIG``.
        context: its name; None: the current one.

    Returns:
        The headers with which every request asks to be made as another user.

    Raises:
        config.ConfigException: a field is unknown, or cannot be honoured.
    """
    merged = KubeConfigMerger(files).config
    name = context or merged["current-context"]
    named = merged["contexts"].get_with_name(name)["context"].value
    user, place = _entry(merged, "user", named.get("user"))
    cluster, _ = _entry(merged, "cluster", named.get("cluster"))
    _check_fields(user, USER_FIELDS, f"user {named.get('user')}")
    _check_fields(cluster, CLUSTER_FIELDS, f"cluster {named.get('cluster')}")
    provider = (user.get("auth-provider") or {"name": "oidc"}).get("name")
    if provider not in _AUTH_PROVIDERS:
        raise config.ConfigException(f"edl does not know the auth-provider {provider}; use exec")
    if proxy := cluster.get("proxy-url"):
        if not proxy.startswith(("http://", "https://")):
            raise config.ConfigException(f"the proxy {proxy} is none for HTTP")
        configuration.proxy = proxy
    if path := user.get("tokenFile"):
        configuration.refresh_api_key_hook = _read_token(place.parent / path)
        configuration.refresh_api_key_hook(configuration)
    return _impersonation(user)


def _entry(merged: Any, kind: str, name: object) -> tuple[Mapping[str, Any], Path]:
    """Return what is configured under a name, and the file that has it."""
    if f"{kind}s" in merged:
        node = merged[f"{kind}s"].get_with_name(name, safe=True)
        if node is not None:
            return node.value[kind] or {}, Path(node.path).absolute()
    return {}, Path()


def _check_fields(entry: Mapping[str, Any], known: frozenset[str], of: str) -> None:
    for field in entry:
        if field not in known:
            raise config.ConfigException(f"{of} has the field {field}, which edl does not know")


def _read_token(path: Path) -> Callable[[client.Configuration], None]:
    """Return a hook that reads the token again before each request: such files change."""

    def hook(configuration: client.Configuration) -> None:
        with suppress(OSError):  # it is being replaced
            configuration.api_key["BearerToken"] = f"Bearer {path.read_text().strip()}"

    return hook


def _impersonation(user: Mapping[str, Any]) -> tuple[Header, ...]:
    headers: list[Header] = []
    if name := user.get("as"):
        headers.append(("Impersonate-User", str(name)))
    elif any(user.get(field) for field in ("as-groups", "as-uid", "as-user-extra")):
        raise config.ConfigException("as-groups, as-uid and as-user-extra need the field as")
    if uid := user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(uid)))
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return tuple(headers)


class HeaderPool:
    """A pool of connections that adds headers to each request; a name may occur several times.

    Args:
        pool: makes the requests.
        headers: to add.
    """

    def __init__(self, pool: urllib3.PoolManager, headers: tuple[Header, ...]) -> None:
        self._pool = pool
        self._headers = headers

    def request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        """Make a request."""
        complete = urllib3.HTTPHeaderDict(headers or {})
        for name, value in self._headers:
            complete.add(name, value)
        return self._pool.request(method, url, headers=complete, **options)

    def clear(self) -> None:
        """Close all connections."""
        self._pool.clear()
