"""Creates an object that a job's Job owns, whatever became of earlier attempts and earlier jobs."""

from __future__ import annotations

import time

from edl.plugins.backends import Say, silent
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.outages import POLL_S, RETRY_S, retry_unanswered
from edl_kubernetes.placement import KINDS
from edl_kubernetes.session import ClusterConnection
from edl_runtime.kubernetes.api_errors import ApiError

_REMOVAL_S = 120.0
"""How long the objects of a deleted job of the same name may take to disappear."""


def create_owned(
    connection: ClusterConnection, item: JsonObject, own: JsonObject, say: Say = silent
) -> None:
    """Create an object, after one of the same name that is being removed has gone.

    Args:
        item: the object; gets the Job as its owner.
        own: the Job.
        say: gets what this waits for.

    Raises:
        ApiError: it was refused, or an object that is no former job's has its name.
        ApiUnavailable: the server does not answer.
    """
    named = {"name": own["metadata"]["name"], "uid": own["metadata"]["uid"]}
    item["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", **named}]
    place = connection.place(KINDS[item["kind"]], item["metadata"]["namespace"])
    began = time.monotonic()

    def create() -> bool:
        try:
            connection.api.create(place, item)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            found = _metadata(connection, f"{place}/{item['metadata']['name']}")
            owners = [owner["uid"] for owner in found.get("ownerReferences") or ()]
            if named["uid"] in owners:
                return True  # an earlier attempt had an effect although it was not answered
            is_removed = not found or "deletionTimestamp" in found
            if not (owners or is_removed) or time.monotonic() - began > _REMOVAL_S:
                raise
            return False
        return True

    is_reported = False
    while not retry_unanswered(create, RETRY_S):
        if not is_reported:
            is_reported = True
            what = f"{item['kind']} {item['metadata']['name']}"
            say(f"waiting for the removal of the {what} of a former job")
        time.sleep(POLL_S)


def _metadata(connection: ClusterConnection, path: str) -> JsonObject:
    """The metadata of an object; empty if there is none any more."""
    try:
        found: JsonObject = connection.api.get(path)["metadata"]
    except ApiError as error:
        if error.status != 404:
            raise
        return {}
    return found
