"""The codec of the reports of parameter servers."""

from __future__ import annotations

from edl_master.core.parameters.statistics import ServerStatistics
from edl_proto.v1 import servers_pb2


def statistics_to(statistics: ServerStatistics) -> servers_pb2.ServerStatistics:
    """Convert the statistics of a server into their message."""
    return servers_pb2.ServerStatistics(
        received_nbytes=statistics.received_nbytes,
        sent_nbytes=statistics.sent_nbytes,
        requests=statistics.requests,
        requests_s=statistics.requests_s,
        cpu_s=statistics.cpu_s,
        resident_nbytes=statistics.resident_nbytes,
    )


def statistics_from(message: servers_pb2.ServerStatistics) -> ServerStatistics:
    """Undo ``statistics_to``."""
    return ServerStatistics(
        received_nbytes=message.received_nbytes,
        sent_nbytes=message.sent_nbytes,
        requests=message.requests,
        requests_s=message.requests_s,
        cpu_s=message.cpu_s,
        resident_nbytes=message.resident_nbytes,
    )
