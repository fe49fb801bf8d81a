"""Files of the master, for a parameter server in a pod, which does not share a disk with it."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from edl_master.adapters.file_pieces import read_pieces, write_pieces
from edl_proto.errors import EdlError
from edl_proto.v1 import servers_pb2, servers_pb2_grpc

log = logging.getLogger(__name__)

_CALL_S = 600.0
_RETRIES_S = 120.0
"""How long a transfer that breaks off is begun again; the master's end ends this server sooner."""

_RETRY_S = 0.5


class RemoteFiles:
    """Fetches the checkpoint to restore, and sends the parts of snapshots.

    Args:
        master: its services.
        server: number of this server.
        incarnation: of the master.
        scratch: a directory of this process.
    """

    def __init__(
        self, master: servers_pb2_grpc.ServersStub, server: int, incarnation: str, scratch: Path
    ) -> None:
        self._master = master
        self._server = server
        self._incarnation = incarnation
        self.scratch = scratch

    def fetch(self) -> Path:
        """Return the checkpoint that this server is to restore.

        Raises:
            EdlError: the master refuses.
            grpc.RpcError: the master cannot be reached for long.
        """
        request = servers_pb2.ReadCheckpointRequest(
            server=self._server, incarnation=self._incarnation
        )
        folder = self.scratch / "checkpoint"

        def fetch() -> None:
            pieces = self._master.ReadCheckpoint(request, timeout=_CALL_S)
            write_pieces(folder, ((piece.file, piece.content) for piece in pieces))

        self._insist(fetch)
        return folder

    def send(self, folder: Path, label: str, place: str) -> None:
        """Give a part to the master, and remove it here.

        Raises: as ``fetch``.
        """

        def messages() -> Iterator[servers_pb2.FilePiece]:
            for file, content in read_pieces(folder):
                yield servers_pb2.FilePiece(
                    server=self._server,
                    incarnation=self._incarnation,
                    label=label,
                    place=place,
                    file=file,
                    content=content,
                )

        self._insist(lambda: self._master.WritePart(messages(), timeout=_CALL_S))
        shutil.rmtree(folder)

    def _insist(self, transfer: Callable[[], object]) -> None:
        """Begin a transfer again when it breaks off; a refusal is an error at once."""
        until = time.monotonic() + _RETRIES_S
        while True:
            try:
                transfer()
            except grpc.RpcError as error:
                if (known := EdlError.from_rpc(error)) is not None:
                    raise known from error
                if time.monotonic() > until:
                    raise
                log.warning("a transfer of files failed: %s", error)
                time.sleep(_RETRY_S)
            else:
                return
