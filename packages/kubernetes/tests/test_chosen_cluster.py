"""Which cluster and namespace commands work with, and what keeps them from it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edl.core.options.kubernetes import ClusterChoice
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import credential_programs
from edl_proto.errors import EdlError, ErrorCode


def make_cluster(
    folder: Path, choice: ClusterChoice, program: Sequence[str] = (), namespace: object = None
) -> ChosenCluster:
    """Return the cluster of a kubeconfig whose user's credentials a Python program prints."""
    context: dict[str, Any] = {"cluster": "here", "user": "me"}
    if namespace is not None:
        context["namespace"] = namespace
    user: dict[str, Any] = {"token": "secret"}
    if program:
        user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": ["-c", *program],
            }
        }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": context}],
        "users": [{"name": "me", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return ChosenCluster(choice, {"KUBECONFIG": str(path)})


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "a b", "Team", "n" * 64, "a.b", "%2e"])
def test_what_is_no_name_never_becomes_part_of_a_path(tmp_path: Path, name: str) -> None:
    for made in (
        make_cluster(tmp_path, ClusterChoice(namespace=name)),
        make_cluster(tmp_path, ClusterChoice(), namespace=name),
    ):
        with pytest.raises(EdlError, match="cannot be a namespace") as caught:
            made.connect()
        assert caught.value.code == ErrorCode.USAGE


def test_a_pod_without_a_service_account_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    environ = {"KUBECONFIG": str(tmp_path / "none"), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(EdlError, match="this pod has no token of a service account") as caught:
        ChosenCluster(ClusterChoice(), environ).connect()
    assert caught.value.code == ErrorCode.FORBIDDEN
    assert "automountServiceAccountToken: true" in caught.value.remedy
    assert "token file does not exist" in caught.value.detail


def test_a_namespace_may_be_longer_than_a_job_s_name(tmp_path: Path) -> None:
    connection = make_cluster(tmp_path, ClusterChoice(namespace="n" * 63)).connect()
    assert connection.namespace == "n" * 63


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('your login has expired')", "your login has expired"),
        ("print('{}')", "malformed response"),
        ("print('no JSON')", "failed to decode"),
    ],
)
def test_a_program_that_gets_no_credentials_is_quoted_and_logs_nothing(
    tmp_path: Path,
    program: str,
    said: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(EdlError, match=said) as caught:
        make_cluster(tmp_path, ClusterChoice(), [program]).connect()
    assert caught.value.code == ErrorCode.FORBIDDEN
    assert caplog.text == ""
    assert capfd.readouterr().err == ""
    logging.getLogger().warning("others may still log")
    assert "others may still log" in caplog.text


def test_other_messages_are_logged_and_no_handler_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with credential_programs.require_credentials():
        logging.getLogger().warning("another thread is here")
    assert "another thread is here" in caplog.text
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a program without logging
    with pytest.raises(EdlError, match="login"):
        make_cluster(tmp_path, ClusterChoice(), ["import sys; sys.exit('no login')"]).connect()
    assert logging.getLogger().handlers == []


def test_a_program_that_fails_later_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its old token is used until the API server refuses it."""
    mark = tmp_path / "ran"
    first = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "first", "expirationTimestamp": "2020-01-01T00:00:00Z"},
    }
    program = (
        f"import pathlib, sys; mark = pathlib.Path({str(mark)!r})\n"
        "if mark.exists(): mark.write_text('twice'); sys.exit('no')\n"
        f"mark.touch(); print({json.dumps(first)!r})"
    )
    connection = make_cluster(tmp_path, ClusterChoice(), [program]).connect()
    configuration = connection.api._client.configuration
    for _ in range(2):
        mark.write_text("once")
        assert configuration.get_api_key_with_prefix("BearerToken") == "Bearer first"
        assert mark.read_text() == "twice"
    assert caplog.text == ""
