"""The Secrets with a job's identities: one of the authority, and blocks of workers and of servers.

A pod sees one key of one Secret: its own. A block is always full, so that a job can grow within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edl_kubernetes.cluster import objects
from edl_kubernetes.core.templates import JsonObject

NOT_SHOWN = "made at submission"
"""The value of an annotation in objects that are shown or checked without their keys."""


@dataclass(frozen=True, slots=True)
class IdentitySecret:
    """One Secret, without its content.

    Attributes:
        name: the name of the Secret.
        role: the role of the pods that mount it.
        first: the number of the first worker or server; None for the Secret of the authority.
    """

    name: str
    role: str
    first: int | None = None

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the workers or parameter servers whose identities it has."""
        if self.first is None:
            return ()
        return range(self.first, self.first + objects.IDENTITIES_PER_SECRET)


def authority_secret(job: str) -> IdentitySecret:
    """Return the Secret of the authority, which only the master mounts."""
    return IdentitySecret(objects.authority_secret(job), objects.MASTER)


def blocks(job: str, role: str, count: int) -> Sequence[IdentitySecret]:
    """Return the Secrets of the first ``count`` workers or parameter servers."""
    return [
        IdentitySecret(objects.identity_secret(job, role, first), role, first)
        for first in range(0, count, objects.IDENTITIES_PER_SECRET)
    ]


def secrets(job: str, workers: int, servers: int) -> Sequence[IdentitySecret]:
    """Return all Secrets of a new job."""
    own = blocks(job, objects.WORKER, workers)
    return [authority_secret(job), *own, *blocks(job, objects.SERVER, servers)]


def render(
    secret: IdentitySecret,
    namespace: str,
    metadata: JsonObject,
    content: Mapping[str, str] | None = None,
) -> JsonObject:
    """Return the Secret as an object.

    Args:
        secret: the Secret.
        namespace: the namespace of the job.
        metadata: labels and annotations.
        content: PEM by key; None if the object is only shown or checked.
    """
    metadata = {**metadata, "name": secret.name, "namespace": namespace}
    item: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    item["type"] = "Opaque"
    if content is None:
        annotations = metadata.get("annotations", {})
        metadata["annotations"] = {**annotations, objects.ANNOTATION_CONTENT: NOT_SHOWN}
        return item
    return {**item, "stringData": dict(content)}
