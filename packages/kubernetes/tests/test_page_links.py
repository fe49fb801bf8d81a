"""Where links to the page of a job on Kubernetes come from: its Secret, if the user may read it."""

from __future__ import annotations

import base64
import time
from typing import Any, cast

from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.page_links import page_link
from edl_runtime.identity.page_key import PageKey


class Cluster:
    """A namespace with one Secret; cluster, connection and API at once."""

    is_chosen = True
    namespace = "team"

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer

    @property
    def api(self) -> Cluster:
        return self

    def connect(self) -> Cluster:
        return self

    def path(self, kind: str, namespace: str) -> str:
        return f"/{namespace}/{kind}"

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/team/v1 secrets/edl-digits"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def link(answer: dict[str, Any] | Exception, url: str = "http://127.0.0.1:1/") -> str:
    cluster = cast(ChosenCluster, Cluster(answer))
    return page_link(cluster, JobObjects(cluster), "digits", url)


def test_the_key_is_an_entry_of_the_secret() -> None:
    own = PageKey.create()
    secret = {"data": {"page-key": base64.b64encode(own.text.encode()).decode()}}
    page, _, token = link(secret).partition("?token=")
    assert page == "http://127.0.0.1:1/"
    assert own.is_fresh_link(token, time.time())
    assert link(secret, "") == ""


def test_without_a_key_there_is_only_the_address() -> None:
    answers: tuple[dict[str, Any] | Exception, ...] = (
        {},
        {"data": {"spec.json": "e30="}},
        {"data": {"page-key": "c2hvcnQ="}},
        ApiError(403, "Forbidden", "no"),
        ApiError(404, "NotFound", "gone"),
        ApiUnavailable("no answer"),
    )
    for answer in answers:
        assert link(answer) == "http://127.0.0.1:1/"
