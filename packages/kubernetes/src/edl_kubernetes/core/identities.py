"""The Secrets with a job's identities: the authority's, and blocks of workers and of servers.

A pod sees one key of one Secret, its own. A block is always whole: a job can grow within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edl_kubernetes.core.templates import JsonObject
from edl_runtime.kubernetes import objects

NOT_SHOWN = "made at submission"
"""Stands in an annotation for keys where objects are shown or checked."""


@dataclass(frozen=True, slots=True)
class IdentitySecret:
    """One Secret, without its content.

    Attributes:
        name: of the Secret.
        role: label of the pods that mount it.
        first: number of the first worker or server; None: this is the authority's.
    """

    name: str
    role: str
    first: int | None = None

    @property
    def numbers(self) -> Sequence[int]:
        """Workers or parameter servers whose identities it has."""
        if self.first is None:
            return ()
        return range(self.first, self.first + objects.IDENTITIES_PER_SECRET)


def authority_secret(job: str) -> IdentitySecret:
    """The Secret that the master alone mounts."""
    return IdentitySecret(objects.authority_secret(job), objects.MASTER)


def blocks(job: str, role: str, count: int) -> Sequence[IdentitySecret]:
    """The Secrets of the first so many workers or parameter servers."""
    return [
        IdentitySecret(objects.identity_secret(job, role, first), role, first)
        for first in range(0, count, objects.IDENTITIES_PER_SECRET)
    ]


def secrets(job: str, workers: int, servers: int) -> Sequence[IdentitySecret]:
    """All Secrets of a new job."""
    own = blocks(job, objects.WORKER, workers)
    return [authority_secret(job), *own, *blocks(job, objects.SERVER, servers)]


def render(
    secret: IdentitySecret,
    namespace: str,
    metadata: JsonObject,
    content: Mapping[str, str] | None = None,
) -> JsonObject:
    """The Secret as an object.

    Args:
        metadata: its labels and annotations.
        content: PEM by key; None: the object is only shown, or checked.
    """
    described = {**metadata, "name": secret.name, "namespace": namespace}
    made: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": described}
    made["type"] = "Opaque"
    if content is None:
        noted = {**metadata.get("annotations", {}), objects.ANNOTATION_CONTENT: NOT_SHOWN}
        described["annotations"] = noted
        return made
    return {**made, "stringData": dict(content)}
