"""Creates an object that a job's Job owns, whatever became of earlier attempts and earlier jobs."""

from __future__ import annotations

import time

from edl.adapters.kubernetes.placement import KINDS
from edl.adapters.kubernetes.session import ClusterConnection
from edl.core.cluster.templates import JsonObject
from edl_proto.kubernetes.api_errors import ApiError, ApiUnavailable

_POLL_S = 0.5
_REMOVAL_S = 120.0
"""How long the objects of a deleted job of the same name may take to disappear."""

_RETRY_S = 30.0
"""How long an API server that does not answer is asked again."""


def create_owned(connection: ClusterConnection, item: JsonObject, own: JsonObject) -> None:
    """Create an object, after one of the same name that is being removed has gone.

    Args:
        item: the object; gets the Job as its owner.
        own: the Job.

    Raises:
        ApiError: it was refused, or another object has its name.
        ApiUnavailable: the server does not answer.
    """
    named = {"name": own["metadata"]["name"], "uid": own["metadata"]["uid"]}
    item["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", **named}]
    place = connection.place(KINDS[item["kind"]], item["metadata"]["namespace"])
    began = time.monotonic()
    while True:
        try:
            connection.api.create(place, item)
            return
        except ApiUnavailable:
            if time.monotonic() - began > _RETRY_S:
                raise
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            if _is_owned(connection, f"{place}/{item['metadata']['name']}", named["uid"]):
                return  # an earlier attempt had an effect although it was not answered
            if time.monotonic() - began > _REMOVAL_S:
                raise
        time.sleep(_POLL_S)


def _is_owned(connection: ClusterConnection, path: str, owner: str) -> bool:
    try:
        found = connection.api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    owners = found["metadata"].get("ownerReferences") or ()
    return any(it["uid"] == owner for it in owners)
