"""Makes links to the pages of jobs, for users who may read the jobs' Secrets."""

from __future__ import annotations

import base64
import time

from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.job_objects import JobObjects
from edl_runtime.identity.page_key import PageKey


def page_link(cluster: ChosenCluster, job_objects: JobObjects, name: str, url: str) -> str:
    """Return a URL that opens a job's page once; ``url`` itself if the user may not read the key.

    Args:
        cluster: the cluster of the job.
        job_objects: the objects of the job.
        name: the name of the job.
        url: the URL of the page; may be empty.
    """
    key = _page_key(cluster, job_objects, name) if url else None
    return key.link(url, time.time()) if key is not None else url


def _page_key(cluster: ChosenCluster, job_objects: JobObjects, name: str) -> PageKey | None:
    namespace, job = job_objects.locate(name)
    connection = cluster.connect()
    path = connection.path("v1 secrets", namespace)
    try:
        secret = connection.api.get(f"{path}/{objects.object_name(job)}")
        text = (secret.get("data") or {}).get(objects.PAGE_KEY, "")
        return PageKey(base64.b64decode(text).decode("ascii"))
    except (ApiError, ApiUnavailable, ValueError):
        return None
