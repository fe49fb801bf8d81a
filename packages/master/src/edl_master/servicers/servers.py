"""The calls of parameter servers: the command log, and reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from edl_master.adapters.checkpoints import part_path
from edl_master.adapters.file_pieces import read_pieces, write_pieces
from edl_master.adapters.storage_errors import storage_error
from edl_master.codec import malformed_message
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.server_group import report_codec
from edl_master.server_group.group import ParameterServerGroup
from edl_master.servicers.checks import check_incarnation
from edl_master.servicers.payloads import header_of
from edl_proto.errors import EdlError
from edl_proto.transport.frames import Frames, Pieces, delimit
from edl_proto.transport.listener import Call
from edl_proto.v1 import servers_pb2, servers_pb2_grpc

_LABEL = re.compile(r"\w[\w-]*")


class ServersServicer(servers_pb2_grpc.ServersServicer):
    """Serves ``Servers``, and ``Follow`` of ``COORDINATOR``.

    Args:
        group: the parameter servers.
        incarnation: of this master.
        on_lost: called with the number of a server that is lost, and how.
        on_failed: called with the failure of a server.
    """

    def __init__(
        self,
        group: ParameterServerGroup,
        incarnation: str,
        on_lost: Callable[[int, str], None],
        on_failed: Callable[[EdlError], None],
    ) -> None:
        self._group = group
        self._incarnation = incarnation
        self._on_lost = on_lost
        self._on_failed = on_failed

    def follow(self, frames: Frames, call: Call) -> Pieces:
        """Answer the raw call by which a server receives the command log."""
        request = header_of(servers_pb2.FollowRequest(), frames)
        check_incarnation(self._incarnation, request.incarnation)
        entries = self._group.follow(request.server, request.address, call.is_active)
        try:
            yield servers_pb2.FollowReply().SerializeToString()
            yield from map(delimit, entries)
            if self._group.over:
                yield delimit(b"")
        finally:
            if not self._group.over:
                self._on_lost(request.server, "has disconnected")

    def Report(
        self, request: servers_pb2.ServerReport, context: grpc.ServicerContext
    ) -> servers_pb2.ServerReportReply:
        check_incarnation(self._incarnation, request.incarnation)
        statistics = (
            report_codec.statistics_from(request.statistics)
            if request.HasField("statistics")
            else None
        )
        self._group.record_heartbeat(request.server, statistics)
        match request.WhichOneof("what"):
            case "snapshot_written":
                self._group.report_written(
                    request.server, request.snapshot_written, request.seconds
                )
            case "failed":
                failure = EdlError.from_proto(request.failed)
                self._on_failed(failure)
                self._group.report_failed(failure)
            case "tables":
                tables = TableStatistics(dict(request.tables.rows), request.tables.nbytes)
                self._group.report_tables(request.server, tables)
            case _:
                pass
        return servers_pb2.ServerReportReply()

    def WritePart(
        self, request_iterator: Iterator[servers_pb2.FilePiece], context: grpc.ServicerContext
    ) -> servers_pb2.WritePartReply:
        first = next(request_iterator, servers_pb2.FilePiece())
        check_incarnation(self._incarnation, first.incarnation)
        log = self._group.log
        if not log.is_place(first.place) or not _LABEL.fullmatch(first.label):
            raise malformed_message(f"no part of {first.label!r} belongs to {first.place!r}")
        folder = part_path(Path(first.place), log.job, first.label, first.server)

        def pieces() -> Iterator[tuple[str, bytes]]:
            yield first.file, first.content
            for piece in request_iterator:
                self._group.record_heartbeat(first.server)
                yield piece.file, piece.content

        try:
            write_pieces(folder, pieces())
        except ValueError as error:
            raise malformed_message(str(error)) from error
        except OSError as error:
            raise storage_error(error, folder) from error
        return servers_pb2.WritePartReply()

    def ReadCheckpoint(
        self, request: servers_pb2.ReadCheckpointRequest, context: grpc.ServicerContext
    ) -> Iterator[servers_pb2.FilePiece]:
        check_incarnation(self._incarnation, request.incarnation)
        for file, content in read_pieces(Path(self._group.log.restore_from)):
            yield servers_pb2.FilePiece(file=file, content=content)
