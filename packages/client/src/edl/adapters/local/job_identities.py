"""The identities of a job (docs/adr/0021), as its client makes and uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory

_FIRST_WORKERS = 16
"""Workers that get their identities from the client; the master signs those of later ones."""


def create(job_dir: Path, spec: job_pb2.JobSpec) -> None:
    """Make the authority of a new job, and the identities that its master need not make.

    Raises:
        EdlError: SYSTEM.
    """
    IdentityFolder(job_dir / job_directory.IDENTITY, spec.name).create(_first(spec))


def _first(spec: job_pb2.JobSpec) -> Iterator[tuple[Role, int | None]]:
    for role in (Role.MASTER, Role.CLIENT, Role.VIEWER):
        yield role, None
    for number in range(spec.training.parameter_servers):
        yield Role.SERVER, number
    for number in range(min(spec.workers.max, _FIRST_WORKERS)):
        yield Role.WORKER, number


def master_peer(job_dir: Path) -> Peer | None:
    """Return the master of a job, as its client knows it; None if the job is not secured.

    Raises:
        EdlError: FORBIDDEN or SYSTEM; the client's identity cannot be used.
    """
    identities = IdentityFolder(job_dir / job_directory.IDENTITY, job_dir.name)
    if not identities.exists:
        return None
    return Credentials(identities.provide(Role.CLIENT)).to(Role.MASTER)
