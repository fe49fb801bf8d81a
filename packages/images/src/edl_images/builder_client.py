"""The link to a builder: one build, from the first message to the last."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import grpc

from edl.plugins.errors import decode_failure
from edl.plugins.files import MAX_INPUT_BYTES, may_be_read_by_others, open_input, read_input
from edl.plugins.images import (
    BuilderEndpoint,
    BuildLogLine,
    BuildRequest,
    BuildStatus,
    BuiltImage,
)
from edl_proto import fields
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport import channels
from edl_proto.v1 import builder_pb2, builder_pb2_grpc
from edl_runtime.image_names import is_on_this_machine
from edl_runtime.model.git_source import GitSource

TOKEN = "EDL_BUILDER_TOKEN"
TOKEN_FILE = "EDL_BUILDER_TOKEN_FILE"
TOKEN_HOST = "EDL_BUILDER_TOKEN_HOST"

_CHUNK = 256 << 10
_CONNECT_S = 10.0
_RECONNECT_S = 60.0
"""How long the client waits for a builder that has gone away: its builds survive a restart."""

_CALL_S = 10.0
_UNIX = "unix:/"

_PHASES = {
    builder_pb2.QUEUED: "queued",
    builder_pb2.RECEIVING: "receiving",
    builder_pb2.FETCHING: "fetching",
    builder_pb2.RESOLVING: "resolving",
    builder_pb2.BUILDING: "building",
    builder_pb2.PUSHING: "pushing",
    builder_pb2.DONE: "done",
    builder_pb2.BUILD_FAILED: "failed",
    builder_pb2.BUILD_CANCELLED: "cancelled",
}


class BuilderClient:
    """A client of one builder. Also a context manager.

    Args:
        address: host:port, or ``unix:`` and the path of a socket of this machine.
        service: how it is to be trusted.
        environ: has the token, or names its file.

    Raises:
        EdlError: USAGE; the address or one of the files is no good, or the token is not for this
            address.
    """

    def __init__(
        self, address: str, service: BuilderEndpoint, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.address = address
        token = _token_for(address, service, environ)
        self._channel = _connect(address, service)
        self._stub = builder_pb2_grpc.BuilderStub(self._channel)
        self._closed = False
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def __enter__(self) -> BuilderClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._channel.close()

    def build(
        self, request: BuildRequest, archive: IO[bytes] | None
    ) -> Iterator[BuildStatus | BuildLogLine]:
        """Have an image built, and yield its progress; the last status is final.

        A connection that breaks is taken up again where it broke.

        Args:
            archive: the zoo, if it is a folder of this machine.

        Raises:
            EdlError: the request is refused, or BUILDER_UNAVAILABLE.
        """
        self._await_ready()
        call = self._stub.Build(_requests(request, archive), metadata=self._metadata)
        build, seen, broken_at = "", 0, 0.0
        while True:
            try:
                for news in call:
                    broken_at = 0.0
                    progress = decode_progress(news)
                    if isinstance(progress, BuildStatus):
                        build = progress.id
                    elif progress.number <= seen:
                        continue
                    else:
                        seen = progress.number
                    yield progress
                    if isinstance(progress, BuildStatus) and progress.is_final:
                        return
                raise self._unavailable("the builder closed the call without a result")
            except grpc.RpcError as error:
                broken_at = broken_at or time.monotonic()
                late = time.monotonic() - broken_at > _RECONNECT_S
                if not build or self._closed or late or not _is_broken(error):
                    raise self._translate(error) from error
                time.sleep(0.5)
                again = builder_pb2.WatchBuildRequest(id=build, after_line=seen)
                call = self._stub.Watch(again, metadata=self._metadata)

    def cancel(self, build: str) -> None:
        """Cancel a build for all its subscribers. Raises: EdlError."""
        try:
            request = builder_pb2.CancelBuildRequest(id=build)
            self._stub.Cancel(request, metadata=self._metadata, timeout=_CALL_S)
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def _await_ready(self) -> None:
        try:
            grpc.channel_ready_future(self._channel).result(timeout=_CONNECT_S)
        except grpc.FutureTimeoutError:
            raise self._unavailable(f"no builder answered within {_CONNECT_S:.0f} s") from None

    def _translate(self, error: grpc.RpcError) -> EdlError:
        known = EdlError.from_rpc(error)
        if known is not None:
            return known
        code = error.code() if isinstance(error, grpc.Call) else None
        details = (error.details() if isinstance(error, grpc.Call) else "") or str(error)
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return EdlError(
                ErrorCode.FORBIDDEN,
                f"authentication failed: {details.partition(';')[0]}",
                where=self.address,
                remedy=f"Set {TOKEN}, or {TOKEN_FILE} to a file with the token; or name"
                " your client certificate with --builder-identity.",
            )
        return self._unavailable(f"the builder ended the call: {code.name if code else details}")

    def _unavailable(self, what: str) -> EdlError:
        return EdlError(
            ErrorCode.BUILDER_UNAVAILABLE,
            what,
            where=self.address,
            remedy="Check host and port in --builder, and whether the builder runs. If its"
            " certificate has a private authority, name that authority with --builder-ca.",
        )


def _is_broken(error: grpc.RpcError) -> bool:
    """Return whether the connection ended, not the build."""
    return (
        EdlError.from_rpc(error) is None
        and isinstance(error, grpc.Call)
        and error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    )


def _requests(
    request: BuildRequest, archive: IO[bytes] | None
) -> Iterator[builder_pb2.BuildRequest]:
    spec = builder_pb2.BuildSpec(
        base_image=request.base_image,
        repository=request.repository,
        tag=request.tag,
        labels=dict(request.labels),
    )
    if isinstance(request.zoo, GitSource):
        spec.git.url, spec.git.ref = str(request.zoo.url), request.zoo.ref
        spec.git.folder, spec.git.credential = request.zoo.folder, request.credential
        return iter([builder_pb2.BuildRequest(spec=spec)])
    assert archive is not None, "a folder is sent as an archive"
    spec.archive.nbytes = archive.seek(0, os.SEEK_END)
    return _with_archive(spec, archive)


def _with_archive(
    spec: builder_pb2.BuildSpec, archive: IO[bytes]
) -> Iterator[builder_pb2.BuildRequest]:
    yield builder_pb2.BuildRequest(spec=spec)
    archive.seek(0)
    while chunk := archive.read(_CHUNK):
        yield builder_pb2.BuildRequest(chunk=chunk)


def _connect(address: str, service: BuilderEndpoint) -> grpc.Channel:
    if address.startswith(_UNIX):
        return channels.connect(address)
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise EdlError(
            ErrorCode.USAGE,
            f"--builder {address}: expected HOST:PORT",
            where="--builder",
            remedy="For example: --builder builder.example.com:50051",
        )
    if is_on_this_machine(address) and not service.ca and not service.identity:
        return channels.connect(address)
    identity = _read(service.identity, "--builder-identity") if service.identity else None
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_roots(service), private_key=identity, certificate_chain=identity
    )
    options: list[Any] = list(channels.CLIENT_OPTIONS)
    return grpc.secure_channel(address, credentials, options=options)


def _roots(service: BuilderEndpoint) -> bytes | None:
    if service.ca:
        return _read(service.ca, "--builder-ca")
    # gRPC's own list lacks the certificates that this machine's administrator trusts.
    machine = ssl.get_default_verify_paths().cafile
    return Path(machine).read_bytes() if machine else None


def _read(path: str, option: str) -> bytes:
    try:
        return read_input(Path(path))
    except OSError as error:
        raise _unreadable(path, option, error, "Name a readable file in PEM format.") from error


def _unreadable(path: str, option: str, error: OSError, remedy: str) -> EdlError:
    return EdlError(
        ErrorCode.USAGE,
        f"{option}: the file cannot be read: {error.strerror}",
        where=path,
        remedy=remedy,
    )


def _token_for(address: str, service: BuilderEndpoint, environ: Mapping[str, str]) -> str:
    """Return the token for a builder; empty without one.

    A project file must not direct the token to a host of its choice: it may have come with the
    project. So the user binds the token to a host, or names the builder without that file. A socket
    of this machine needs none: its folder says who may reach it.
    """
    if address.startswith(_UNIX):
        return ""
    token = _token(environ)
    bound = environ.get(TOKEN_HOST, "").strip().lower()
    if not token or bound in (address.lower(), address.rpartition(":")[0].lower()):
        return token
    if not bound and not service.from_project:
        return token
    host = f"the token is for {bound}" if bound else "a project file names the builder"
    raise EdlError(
        ErrorCode.USAGE,
        f"{host}: no token is sent to {address}",
        where=f"${TOKEN_HOST}",
        remedy=f"If the token is for this builder, set {TOKEN_HOST}={address}"
        + ("." if bound else ", or name the builder with --builder or EDL_BUILDER."),
    )


def _token(environ: Mapping[str, str]) -> str:
    if token := environ.get(TOKEN, "").strip():
        return token
    path = environ.get(TOKEN_FILE, "")
    if not path:
        return ""
    try:
        with open_input(Path(path)) as file:
            is_open = may_be_read_by_others(file.fileno())
            token = file.read(MAX_INPUT_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise _unreadable(
            path, TOKEN_FILE, error, "It holds the token, and nothing else."
        ) from error
    if is_open:
        raise EdlError(
            ErrorCode.USAGE,
            f"{TOKEN_FILE}: every user of this machine may read the token",
            where=path,
            remedy=f"chmod 600 {path}, and ask for a new token if other users had access.",
        )
    return token


def decode_progress(message: builder_pb2.BuildProgress) -> BuildStatus | BuildLogLine:
    """Decode a message that a builder streams."""
    if message.WhichOneof("update") == "line":
        return fields.decode(BuildLogLine, message.line)
    status = message.status
    result = status.result
    return BuildStatus(
        id=status.id,
        phase=_PHASES.get(status.phase, "queued"),
        position=status.queue_position,
        waiting=status.subscribers,
        image=fields.decode(BuiltImage, result, name=result.image, build=status.id)
        if status.HasField("result")
        else None,
        failure=decode_failure(status.error) if status.HasField("error") else None,
    )
