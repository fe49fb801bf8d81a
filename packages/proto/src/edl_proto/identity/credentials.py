"""The credentials of a process: they prove its identity, and verify those that it calls."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grpc

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Identity, Role

_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n", re.DOTALL)
_KINDS = [b"PRIVATE KEY", b"CERTIFICATE", b"CERTIFICATE"]


class Credentials:
    """The identity of this process.

    Attributes:
        path: of the file that ``IdentityFolder`` has written.
        key: of the certificate, as PEM; likewise the others.
        certificate: of this process.
        authority: certificate of the job's authority.

    Raises:
        EdlError: FORBIDDEN; the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o007:
                    raise ValueError("others may read it")
                found = list(_BLOCK.finditer(file.read()))
            if [block[1] for block in found] != _KINDS:
                raise ValueError("the file is damaged")
        except (OSError, ValueError) as error:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                f"this process cannot prove who it is: {error}",
                where=str(path),
                remedy="The client makes this file with the job, and only its owner may read it. "
                "Submit the job again if it is lost.",
            ) from error
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
        context.load_cert_chain(self.path)
        return context

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


def channel_credentials(own: Credentials) -> grpc.ChannelCredentials:
    """Return the gRPC credentials for a channel of this process."""
    return grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)


def server_credentials(own: Credentials) -> grpc.ServerCredentials:
    """Return the gRPC credentials of a server, which accepts only callers of this job."""
    return grpc.ssl_server_credentials(
        [(own.key, own.certificate)], own.authority, require_client_auth=True
    )
