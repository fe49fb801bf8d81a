"""Each field of a kubeconfig is honoured or refused: requests as a server receives them."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kubernetes import config

from edl_kubernetes.cluster.api import KubernetesApi

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
Write = Callable[..., str]


class Server:
    """An API server that answers everything with an empty object, and keeps the requests."""

    def __init__(self, listening: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.requests: list[list[str]] = []
        self._listening = listening

    def serve(self) -> None:
        """Answer until the socket is closed."""
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    self.requests.append(connection.recv(1 << 16).decode().split("\r\n"))
                    connection.sendall(ANSWER)


@pytest.fixture
def server() -> Iterator[Server]:
    with run_server() as running:
        yield running


@contextmanager
def run_server() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = Server(listening)
        thread = threading.Thread(target=running.serve)
        thread.start()
        yield running
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def write(tmp_path: Path, server: Server) -> Write:
    """Write a kubeconfig whose user and cluster have these fields; return its path."""

    def write(user: dict[str, Any], **cluster: Any) -> str:
        content = {
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server.url, **cluster}}],
            "users": [{"name": "u", "user": user}],
            "current-context": "c",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(content))
        return str(path)

    return write


IMPERSONATION = {
    "as": "ada",
    "as-uid": "7",
    "as-groups": ["readers", "writers, too"],
    "as-user-extra": {"reason": ["test", "audit"]},
}
HEADERS = [
    "Impersonate-User: ada",
    "Impersonate-Uid: 7",
    "Impersonate-Group: readers",
    "Impersonate-Group: writers, too",
    "Impersonate-Extra-reason: test",
    "Impersonate-Extra-reason: audit",
]


def test_requests_are_made_as_the_user_of_as(server: Server, write: Write) -> None:
    api = KubernetesApi.from_kubeconfig(write({"token": "t", **IMPERSONATION}), "c")
    api.get("/api")
    api.create("/pods", {})
    with suppress(Exception):
        api.web_socket("/portforward", {"ports": "1"})
    api.close()

    assert len(server.requests) == 3
    for request in server.requests:
        assert [line for line in request if line.startswith("Impersonate-")] == HEADERS, request
        assert "authorization: bearer t" in [line.lower() for line in request]


def test_groups_without_a_user_are_refused(write: Write) -> None:
    with pytest.raises(config.ConfigException, match="need the field as"):
        KubernetesApi.from_kubeconfig(write({"token": "t", "as-groups": ["g"]}), "c")


def test_a_line_break_in_a_user_is_refused(write: Write) -> None:
    with pytest.raises(config.ConfigException, match="the user contains a line break"):
        KubernetesApi.from_kubeconfig(write({"as": "ada\r\nX: y"}), "c")


def test_a_token_file_is_read_again(server: Server, write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    api = KubernetesApi.from_kubeconfig(write({"tokenFile": "token"}), "c")
    api.get("/api")
    (tmp_path / "token").write_text("second\n")
    api.get("/api")
    (tmp_path / "token").unlink()
    api.get("/api")
    api.close()

    tokens = [line for request in server.requests for line in request if "Bearer" in line]
    assert [token.split()[-1] for token in tokens] == ["first", "second", "second"]


def test_requests_go_through_the_proxy_of_the_cluster(server: Server, write: Write) -> None:
    with run_server() as proxy:
        api = KubernetesApi.from_kubeconfig(write({}, **{"proxy-url": proxy.url}), "c")
        api.get("/api")
        api.close()

    assert [request[0] for request in proxy.requests] == [f"GET {server.url}/api HTTP/1.1"]
    assert not server.requests


@pytest.mark.parametrize(
    ("user", "cluster", "reason"),
    [
        ({"tokn": "t"}, {}, "user u has the field tokn, which edl does not know"),
        ({}, {"certificate": "x"}, "cluster k has the field certificate"),
        ({}, {"proxy-url": "socks5://127.0.0.1:1"}, "is none for HTTP"),
        ({"tokenFile": "nowhere"}, {}, "nowhere"),
        ({"auth-provider": {"name": "azure"}}, {}, "the auth-provider azure; use exec"),
    ],
)
def test_what_is_not_honoured_is_refused(
    write: Write, user: dict[str, Any], cluster: dict[str, Any], reason: str
) -> None:
    with pytest.raises((config.ConfigException, OSError), match=reason):
        KubernetesApi.from_kubeconfig(write(user, **cluster), "c")


def test_several_files_are_merged(server: Server, write: Write, tmp_path: Path) -> None:
    first = write({"as": "ada"})
    second = tmp_path / "second"
    second.write_text(json.dumps({"users": [{"name": "u", "user": {"as": "eve"}}]}))
    api = KubernetesApi.from_kubeconfig(f"{first}{os.pathsep}{second}", "c")
    api.get("/api")
    api.close()

    assert "Impersonate-User: ada" in server.requests[0]
