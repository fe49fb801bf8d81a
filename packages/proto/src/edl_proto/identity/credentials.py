"""The credentials of a process: they prove its identity, and verify those that it calls.

The file is read again when it is replaced: a certificate is renewed while its process runs.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Identity, Role

log = logging.getLogger(__name__)

_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n", re.DOTALL)
_KINDS = [b"PRIVATE KEY", b"CERTIFICATE", b"CERTIFICATE"]

Stamp = tuple[int, int, int]
"""Distinguishes versions of a file."""


class Material:
    """The content of the identity file at one moment.

    Attributes:
        stamp: of the file.
        key: of the certificate.
        certificate: of this process.
        authority: certificate of the job's authority.
    """

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            OSError: it cannot be read.
            ValueError: others may read it, or it is damaged.
        """
        self._path = path
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_mode & 0o007:
                raise ValueError("others may read it")
            found = list(_BLOCK.finditer(file.read()))
        if [block[1] for block in found] != _KINDS:
            raise ValueError("the file is damaged")
        self.stamp: Stamp = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        self.key, self.certificate, self.authority = (block[0] for block in found)

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        """The TLS context for connections that others make to this process."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # a connection is never resumed: it would survive its certificate
        return context

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """The TLS context for connections that this process makes."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.hostname_checks_common_name = False
        context.load_verify_locations(cadata=self.authority.decode("ascii"))
        # The file may be newer than this content by now; the key is the same in each version.
        context.load_cert_chain(self._path)
        return context


class Credentials:
    """The identity of this process.

    Attributes:
        path: of the file that ``IdentityFolder`` has written.

    Raises:
        EdlError: FORBIDDEN; the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._material = Material(path)
        except (OSError, ValueError) as error:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                f"this process cannot prove who it is: {error}",
                where=str(path),
                remedy="The client makes this file with the job, and only its owner may read it. "
                "Submit the job again if it is lost.",
            ) from error

    def current(self) -> Material:
        """Return the newest content, or the previous one while the file cannot be read."""
        try:
            facts = self.path.stat()
            if (facts.st_ino, facts.st_mtime_ns, facts.st_size) != self._material.stamp:
                self._material = Material(self.path)
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read again: %s", self.path, error)
        return self._material

    def to(self, role: Role, number: int | None = None) -> Peer:
        """Return the peer with this role, which this process is going to call."""
        return Peer(self, Identity("", role, number).host)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process that is called, and that has to prove its identity.

    Attributes:
        credentials: of the caller.
        host: the name that the process must prove.
    """

    credentials: Credentials
    host: str


def channel_credentials(material: Material) -> grpc.ChannelCredentials:
    """Return the gRPC credentials for a channel of this process."""
    return grpc.ssl_channel_credentials(material.authority, material.key, material.certificate)


def server_credentials(credentials: Credentials) -> grpc.ServerCredentials:
    """Return the gRPC credentials of a server; each new connection gets the newest certificate."""
    last = credentials.current()

    def newest() -> Any:
        nonlocal last
        if (material := credentials.current()) is last:
            return None  # as before; the stubs of gRPC do not know this
        last = material
        return _configuration(material)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(last), newest, require_client_authentication=True
    )


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], material.authority
    )
