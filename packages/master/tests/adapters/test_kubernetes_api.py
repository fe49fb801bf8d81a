"""Calls of the API server that fail before there is an answer."""

from __future__ import annotations

from typing import Any

import pytest
import urllib3
from kubernetes import client

from edl_proto.kubernetes.api import ApiUnavailable, KubernetesApi


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
