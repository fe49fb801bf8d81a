"""Creates an object that a Job owns, also after failed attempts and deleted jobs of its name."""

from __future__ import annotations

import time

from edl.plugins.backends import Say, silent
from edl_kubernetes.chosen_cluster import ClusterConnection
from edl_kubernetes.cluster.api_errors import ApiError
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.outages import POLL_S, RETRY_S, retry_unanswered
from edl_kubernetes.placement import RESOURCES

_REMOVAL_S = 120.0
"""How long the objects of a deleted job of the same name may take to disappear."""


def create_owned(
    connection: ClusterConnection, item: JsonObject, owner: JsonObject, say: Say = silent
) -> None:
    """Create an object; wait first until a former one of its name is removed.

    Args:
        connection: the namespace.
        item: the object, to which this adds its owner.
        owner: the Job.
        say: called with a sentence about what this waits for.

    Raises:
        ApiError: the object was refused, or one that belongs to no former job has its name.
        ApiUnavailable: the server does not answer.
    """
    reference = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    item["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", **reference}]
    path = connection.path(RESOURCES[item["kind"]], item["metadata"]["namespace"])
    began = time.monotonic()

    def create() -> bool:
        try:
            connection.api.create(path, item)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            found = _metadata(connection, f"{path}/{item['metadata']['name']}")
            owners = [each["uid"] for each in found.get("ownerReferences") or ()]
            if reference["uid"] in owners:
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
    """Return the metadata of an object; empty if it no longer exists."""
    try:
        found: JsonObject = connection.api.get(path)["metadata"]
    except ApiError as error:
        if error.status != 404:
            raise
        return {}
    return found
