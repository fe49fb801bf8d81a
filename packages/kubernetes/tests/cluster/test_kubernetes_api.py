"""Calls of the API server that fail before there is an answer, or in the middle of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3
from kubernetes import client

from edl_kubernetes.cluster.api import ApiUnavailable, KubernetesApi


@pytest.mark.parametrize(
    "failure",
    [
        urllib3.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),
        urllib3.exceptions.SSLError("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred"),
        urllib3.exceptions.ProtocolError("Connection aborted."),
    ],
    ids=["certificate", "load balancer without a server", "cut off"],
)
def test_a_connection_that_fails_is_an_api_server_that_is_away(failure: Exception) -> None:
    own = client.ApiClient(client.Configuration(host="https://127.0.0.1:1"))

    def fail(*_: Any, **__: Any) -> None:
        raise failure

    own.rest_client.pool_manager.request = fail
    api = KubernetesApi(own)
    with pytest.raises(ApiUnavailable) as caught:
        api.get("/api")
    assert str(failure) in str(caught.value)
    assert api.requests == {("GET", 0): 1}


CUT = b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"items": ['
CUT_PART = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n{"items": ['
OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"
LIST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"


@contextmanager
def answers(octets: bytes) -> Iterator[KubernetesApi]:
    """An API server that sends this to every caller, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(octets)

        thread = threading.Thread(target=serve)
        thread.start()
        configuration = client.Configuration(host=f"http://127.0.0.1:{server.getsockname()[1]}")
        configuration.retries = False
        yield KubernetesApi(client.ApiClient(configuration))
        thread.join()


@pytest.mark.parametrize("octets", [CUT, CUT_PART], ids=["whole", "in parts"])
@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.get("/pod"),
        lambda api: api.list("/pods"),
        lambda api: api.create("/pods", {}),
        lambda api: api.text("/log", {}),
    ],
    ids=["get", "list", "create", "log"],
)
def test_an_answer_that_is_cut_off_is_an_api_server_that_is_away(
    octets: bytes, call: Callable[[KubernetesApi], object]
) -> None:
    # The threads of a master that follow its pods go on after this, and after nothing else.
    with answers(octets) as api, pytest.raises(ApiUnavailable):
        call(api)


@pytest.mark.parametrize("octets", [OTHER, LIST])
def test_what_is_no_api_server_is_one_that_is_away(octets: bytes) -> None:
    with answers(octets) as api, pytest.raises(ApiUnavailable, match="no API server"):
        api.get("/api")


@pytest.mark.parametrize("body", [b'"bad gateway"', b"[]", b"<html>"])
def test_an_error_that_a_proxy_words_is_an_answer_like_others(body: bytes) -> None:
    head = f"HTTP/1.1 502 Bad Gateway\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with answers(head + body) as api, pytest.raises(ApiUnavailable):
        api.get("/api")
