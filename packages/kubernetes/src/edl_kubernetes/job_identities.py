"""Creates and uses the identities of jobs on Kubernetes; see docs/adr/0021."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.core import identities
from edl_kubernetes.core.identities import IdentitySecret
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.owned_objects import create_owned
from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Identity, Role
from edl_runtime.identity.folder import IdentityFolder

_ROLES = {objects.WORKER: Role.WORKER, objects.SERVER: Role.SERVER}


class NewIdentities:
    """Signs identities that go into Secrets.

    They last as long as the authority: a Secret never changes, and a pod may mount it at any time.

    Args:
        job: the name of the job.
        authority: the job's authority as PEM; by default a new one.

    Raises:
        ValueError: the authority is damaged.
    """

    def __init__(self, job: str, authority: bytes = b"") -> None:
        from edl_runtime.identity.authority import Authority  # importing it takes 0.1 s

        self._job = job
        self._authority = Authority.load(authority) if authority else Authority.create(job)

    def content(self, secret: IdentitySecret) -> Mapping[str, str]:
        """Return the content of a Secret: PEM by key."""
        if secret.first is None:
            return {objects.AUTHORITY_KEY: self._authority.to_pem().decode("ascii")}
        role = _ROLES[secret.role]
        return {
            objects.identity_key(number): self._issue(Identity(self._job, role, number))
            for number in secret.numbers
        }

    def _issue(self, identity: Identity) -> str:
        return self._authority.issue(identity).decode("ascii")


class ClientIdentity:
    """Proves to one master that this process is its job's client; ``close`` removes the key.

    Args:
        job: the name of the job.
        authority: the job's authority as PEM.

    Raises:
        EdlError: SYSTEM; no file can be written, or the authority is damaged.
    """

    def __init__(self, job: str, authority: bytes) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="edl-", ignore_cleanup_errors=True)
        try:
            signed = IdentityFolder(Path(self._folder.name) / "identity", job)
            signed.install(authority)
            self.master: Peer = Credentials(signed.provide(Role.CLIENT)).to(Role.MASTER)
            """The master of the job, with the credentials for calling it."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._folder.cleanup()


class JobIdentities:
    """The identities of jobs that exist.

    Every method raises EdlError: FORBIDDEN if the user may not read the authority or create
    Secrets, and CLUSTER_UNAVAILABLE.
    """

    def __init__(self, cluster: ChosenCluster, job_objects: JobObjects) -> None:
        self._cluster = cluster
        self._objects = job_objects

    def client(self, name: str) -> ClientIdentity | None:
        """Return an identity for this process; None if the job, of an early version, has none."""
        _, job = self._objects.locate(name)
        authority = self._authority(name)
        return ClientIdentity(job, authority) if authority else None

    def add_workers(self, name: str, count: int) -> None:
        """Create the identities that the job lacks for this number of workers."""
        namespace, job = self._objects.locate(name)
        _, *further = identities.blocks(job, objects.WORKER, count)  # the job began with the first
        if not further or not (authority := self._authority(name)):
            return
        new = NewIdentities(job, authority)
        owner = self._objects.read(name, needs_spec=False).item
        with self._translate_errors("adding identities of workers"):
            for secret in further:
                labels = {**owner["metadata"]["labels"], objects.LABEL_ROLE: secret.role}
                content = new.content(secret)
                item = identities.render(secret, namespace, {"labels": labels}, content)
                create_owned(self._cluster.connect(), item, owner)

    def _authority(self, name: str) -> bytes:
        """Return the job's authority as PEM; empty if it has none."""
        namespace, job = self._objects.locate(name)
        with self._translate_errors("reading the job's authority"):
            connection = self._cluster.connect()
            path = connection.path("v1 secrets", namespace)
            try:
                secret = connection.api.get(f"{path}/{objects.authority_secret(job)}")
            except ApiError as error:
                if error.status != 404:
                    raise
                return b""
        return base64.b64decode(secret["data"][objects.AUTHORITY_KEY])

    @contextlib.contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (ApiError, ApiUnavailable) as error:
            raise self._cluster.translate(error, doing) from None
