"""Orders and reports, as called by parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from edl_master.core.parameters.exchange import TableFigures
from edl_master.parameter_servers.group import Crew
from edl_master.servicers.checks import check_incarnation
from edl_proto.errors import EdlError
from edl_proto.v1 import servers_pb2, servers_pb2_grpc


class ServersServicer(servers_pb2_grpc.ServersServicer):
    """Decodes, asks the crew.

    Args:
        crew: the parameter servers.
        incarnation: of this master.
        on_lost: told the number of a server that cannot be reached any more, and how.
        on_failed: told that a server cannot go on.
    """

    def __init__(
        self,
        crew: Crew,
        incarnation: str,
        on_lost: Callable[[int, str], None],
        on_failed: Callable[[EdlError], None],
    ) -> None:
        self._crew = crew
        self._incarnation = incarnation
        self._on_lost = on_lost
        self._on_failed = on_failed

    def Follow(
        self, request: servers_pb2.FollowRequest, context: grpc.ServicerContext
    ) -> Iterator[servers_pb2.Order]:
        check_incarnation(self._incarnation, request.incarnation)
        yield from self._crew.follow(request.server, request.address, context.is_active)
        if not self._crew.over:
            self._on_lost(request.server, "follows no more")

    def Report(
        self, request: servers_pb2.ServerReport, context: grpc.ServicerContext
    ) -> servers_pb2.ServerReportReply:
        check_incarnation(self._incarnation, request.incarnation)
        self._crew.heard(request.server)
        match request.WhichOneof("what"):
            case "kept":
                self._crew.told_kept(request.server, request.kept, request.seconds)
            case "failed":
                self._on_failed(EdlError.from_proto(request.failed))
            case "tables":
                figures = TableFigures(dict(request.tables.rows), request.tables.nbytes)
                self._crew.told_tables(request.server, figures)
            case _:
                pass
        return servers_pb2.ServerReportReply()
