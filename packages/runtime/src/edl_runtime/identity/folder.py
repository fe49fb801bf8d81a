"""The identities of a job as files, which the client makes, and which later processes complete.

``authority.pem`` is the job's authority. Next to it each identity has a folder, so that it can be
mounted by itself, with the one file ``identity.pem``. Importing the authority takes a tenth of a
second, so nothing here does that at import.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Identity, Role
from edl_runtime.files import replace_file

_AUTHORITY = "authority.pem"
_FILE = "identity.pem"
_NO_END = b"99991231235959Z"
"""The end of a certificate that never expires. Earlier versions of edl signed for a day."""


class IdentityFolder:
    """The identities of a job as files; a job whose folder exists is secured.

    Args:
        path: the path of the folder.
        job: the name of the job.

    Raises:
        EdlError: SYSTEM for every method that writes: the folder cannot be written, or is damaged.
    """

    def __init__(self, path: Path, job: str) -> None:
        self._path = path
        self._job = job
        self._lock = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether the job is secured."""
        return self._path.is_dir()

    def create(self, identities: Iterable[tuple[Role, int | None]]) -> None:
        """Create the folder with a new authority, and sign these identities."""
        from edl_runtime.identity.authority import Authority

        self.install(Authority.create(self._job).to_pem())
        self._sign([Identity(self._job, role, number) for role, number in identities])

    def install(self, authority: bytes) -> None:
        """Create the folder with an authority that was made elsewhere.

        Args:
            authority: key and certificate, as ``Authority.to_pem`` gives them.
        """
        with self._writing():
            self._path.mkdir(0o700)
            replace_file(self._path / _AUTHORITY, authority, durable=True, is_private=True)

    def file(self, role: Role, number: int | None = None) -> Path:
        """Return where the key and the certificate of an identity are, or will be."""
        return _file(self._path, Identity(self._job, role, number))

    def provide(self, role: Role, number: int | None = None) -> Path:
        """Return the file of an identity for a process that starts now; sign it if necessary.

        Raises:
            EdlError: SYSTEM.
        """
        identity = Identity(self._job, role, number)
        with self._lock:
            if self._is_due(identity):
                self._sign([identity])
        return self.file(role, number)

    def renew(self) -> None:
        """Sign all identities again that an earlier version of edl has signed."""
        with self._lock:
            found = [self._identity_of(path.parent.name) for path in self._path.glob(f"*/{_FILE}")]
            if due := [identity for identity in found if identity and self._is_due(identity)]:
                self._sign(due)

    def _identity_of(self, name: str) -> Identity | None:
        role, _, number = name.partition("-")
        try:
            return Identity(self._job, Role(role), int(number) if number else None)
        except ValueError:
            return None

    def _is_due(self, identity: Identity) -> bool:
        try:
            content = _file(self._path, identity).read_text("ascii")
            own = content.partition(ssl.PEM_HEADER)[2].partition(ssl.PEM_FOOTER)[0]
            certificate = f"{ssl.PEM_HEADER}{own}{ssl.PEM_FOOTER}"
            return _NO_END not in ssl.PEM_cert_to_DER_cert(certificate)
        except (OSError, ValueError):
            return True

    def _sign(self, identities: Iterable[Identity]) -> None:
        from edl_runtime.identity.authority import Authority

        with self._writing():
            authority = Authority.load((self._path / _AUTHORITY).read_bytes())
            for identity in identities:
                path = _file(self._path, identity)
                path.parent.mkdir(0o700, exist_ok=True)
                former = path.read_bytes() if path.exists() else b""
                issued = authority.issue(identity, former)
                replace_file(path, issued, durable=True, is_private=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise EdlError(
                ErrorCode.SYSTEM,
                f"the identities of job {self._job} cannot be written: {error}",
                where=str(self._path),
                remedy="Check the space there, and that the folder is yours alone.",
            ) from error


def _file(folder: Path, identity: Identity) -> Path:
    return folder / identity.name / _FILE
