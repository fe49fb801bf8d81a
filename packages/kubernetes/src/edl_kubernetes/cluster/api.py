"""Calls to the API server with plain JSON values.

The official client provides the connection and the credentials. Its models are not used: they
reject fields that are newer than they are, and decoding a thousand pods with them takes seconds.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import ws_client

from edl_kubernetes.cluster import credential_programs, kubeconfig
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable

__all__ = [
    "ApiError",
    "ApiUnavailable",
    "JsonObject",
    "KubernetesApi",
    "Listing",
    "WatchEvent",
]

JsonObject = dict[str, Any]

_CONNECT_S = 5.0
_ANSWER_S = 30.0
_WATCH_MARGIN_S = 15.0
"""How much longer than the server's own limit a silent watch may last."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects, and the version from which a watch continues."""

    items: list[JsonObject]
    version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change. ``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    item: JsonObject


class KubernetesApi:
    """Calls within one cluster. Any thread may call; a watch holds a connection of its own.

    All methods raise ``ApiError`` and ``ApiUnavailable``.
    """

    def __init__(
        self, api_client: client.ApiClient, headers: tuple[kubeconfig.Header, ...] = ()
    ) -> None:
        """Use a client of the library.

        Args:
            headers: to add to each request.
        """
        self._client = api_client
        self._headers = headers
        if headers:
            rest = api_client.rest_client
            rest.pool_manager = kubeconfig.HeaderPool(rest.pool_manager, headers)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._counting = threading.Lock()

    @property
    def requests(self) -> dict[tuple[str, int], int]:
        """The number of requests by verb and code of the answer; code 0: no answer."""
        with self._counting:
            return dict(self._requests)

    @classmethod
    def in_cluster(cls) -> KubernetesApi:
        """Connect with the service account of this pod, whose token is read again as it changes.

        Raises:
            config.ConfigException: the pod has none.
        """
        configuration = client.Configuration()
        config.load_incluster_config(client_configuration=configuration)
        return cls(_client(configuration))

    @classmethod
    def from_kubeconfig(cls, path: str, context: str | None = None) -> KubernetesApi:
        """Connect as kubectl would.

        Args:
            path: of one file or of several, separated as in ``KUBECONFIG``.
            context: its name; None: the current one.

        Raises:
            config.ConfigException: the file or the context is missing or damaged.
            CredentialsMissing: the program that gets the credentials failed.
        """
        configuration = client.Configuration()
        with credential_programs.require_credentials():
            config.load_kube_config(path, context, configuration)
        if refresh := configuration.refresh_api_key_hook:
            configuration.refresh_api_key_hook = credential_programs.refreshed_quietly(refresh)
        headers = kubeconfig.complete(configuration, path, context)
        for what, texts in (("token", configuration.api_key.values()), ("user", sum(headers, ()))):
            if any(not text.isprintable() for text in texts):
                raise config.ConfigException(f"the {what} contains a line break or the like")
        return cls(_client(configuration), headers)

    def get(self, path: str) -> JsonObject:
        return self._json("GET", path)

    def create(self, path: str, item: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create an object; the server refuses fields that it does not know.

        Args:
            dry_run: only check the object, with all that the server would check.
        """
        query = {"fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self._json("POST", path, query, item)

    def patch(self, path: str, changes: JsonObject) -> JsonObject:
        """Set some fields; None removes a field, and a list is replaced as a whole."""
        return self._json("PATCH", path, body=changes, content="application/merge-patch+json")

    def replace(self, path: str, item: JsonObject) -> JsonObject:
        """Replace an object; fails with 409 if ``metadata.resourceVersion`` is not the newest."""
        return self._json("PUT", path, body=item)

    def delete(self, path: str, grace_s: int | None = None, *, uid: str = "") -> None:
        """Delete an object and, in the background, what it owns.

        Args:
            uid: of the object; another one of the same name is left alone, with status 409.
        """
        body: JsonObject = {"propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if uid:
            body["preconditions"] = {"uid": uid}
        self._json("DELETE", path, body=body)

    def text(self, path: str, query: Mapping[str, str]) -> str:
        """Return a resource that is plain text, such as a log."""
        return _content(self._open("GET", path, query)).decode(errors="replace")

    def list(self, path: str, selector: str = "", fields: str = "") -> Listing:
        """List all objects with these labels and values of fields, in pages."""
        items: list[JsonObject] = []
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": str(_PAGE)}
        while True:
            page = self._json("GET", path, query)
            items += page["items"]
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return Listing(items, metadata["resourceVersion"])
            query["continue"] = metadata["continue"]

    def watch(self, path: str, selector: str, version: str, seconds: int) -> Iterator[WatchEvent]:
        """Yield the changes since a version, until the server ends the watch.

        An expired version raises ``ApiError`` with status 410: list again.
        """
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        response = self._open("GET", path, query, answer_s=seconds + _WATCH_MARGIN_S)
        try:
            for line in _lines(response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal(event["object"].get("code", 500), event["object"])
                yield WatchEvent(event["type"], event["object"])
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiUnavailable(str(error)) from error
        finally:
            response.close()

    def web_socket(self, path: str, query: Mapping[str, str]) -> Any:
        """Open a web socket of ``websocket-client`` to a subresource such as ``portforward``.

        Raises:
            Exception: what that library raises.
        """
        configuration = self._client.configuration
        headers = {"sec-websocket-protocol": "v4.channel.k8s.io"}
        self._client.update_params_for_auth(headers, [], ["BearerToken"])
        headers = {name.lower(): value for name, value in headers.items()}
        for name, value in self._headers:  # the library passes on no header but these two
            headers["sec-websocket-protocol"] += f"\r\n{name}: {value}"
        host = configuration.host.replace("http", "ws", 1)
        url = f"{host}{path}?{urllib.parse.urlencode(query)}"
        return ws_client.create_websocket(configuration, url, headers)

    def close(self) -> None:
        self._client.close()

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content: str = "application/json",
    ) -> JsonObject:
        try:
            answer = json.loads(_content(self._open(method, path, query, body, content)))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):  # of a proxy, or of something else with this address
            raise ApiUnavailable(f"what answers for {path} is no API server of Kubernetes")
        return answer

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content: str = "application/json",
        answer_s: float = _ANSWER_S,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content}
        code = 0
        try:
            response: urllib3.BaseHTTPResponse = self._client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=(_CONNECT_S, answer_s),
            )
        except ApiException as error:
            code = int(error.status or 0)
            raise _error(code, error.body) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiUnavailable(str(error)) from error
        except AttributeError as error:
            # The official client fails at its own error for a certificate, which has no body.
            if not isinstance(error.__context__, ApiException):
                raise
            raise ApiUnavailable(" ".join(str(error.__context__.reason).split())) from error
        else:
            code = response.status
        finally:
            with self._counting:
                self._requests[method, code] += 1
        return response


def _client(configuration: client.Configuration) -> client.ApiClient:
    configuration.connection_pool_maxsize = 8
    configuration.retries = False
    return client.ApiClient(configuration)


def _content(response: urllib3.BaseHTTPResponse) -> bytes:
    """Read the whole answer; a server may end, or be cut off, in the middle of it."""
    try:
        return response.data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ApiUnavailable(str(error)) from error


def _error(status: int, body: str | bytes | None) -> ApiError | ApiUnavailable:
    try:
        content = json.loads(body or "")
    except ValueError:
        content = None
    if not isinstance(content, dict):
        content = {"message": str(body or "").strip()}
    if status in (0, 429) or status >= 500:
        return ApiUnavailable(content.get("message") or f"HTTP {status}")
    return _refusal(status, content)


def _refusal(status: int, body: Mapping[str, Any]) -> ApiError:
    return ApiError(status, body.get("reason", ""), body.get("message", f"HTTP {status}"))


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for part in response.stream(1 << 16):
        *whole, rest = (rest + part).split(b"\n")
        yield from (line for line in whole if line.strip())
