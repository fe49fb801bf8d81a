"""What parameter servers report of themselves, between protobuf and the core's types."""

from __future__ import annotations

from edl_master.core.parameters.figures import ServerFigures
from edl_proto.v1 import servers_pb2


def figures_to(figures: ServerFigures) -> servers_pb2.ServerFigures:
    """What a server has done and uses."""
    return servers_pb2.ServerFigures(
        received_nbytes=figures.received_nbytes,
        sent_nbytes=figures.sent_nbytes,
        requests=figures.requests,
        requests_s=figures.requests_s,
        cpu_s=figures.cpu_s,
        resident_nbytes=figures.resident_nbytes,
    )


def figures_from(message: servers_pb2.ServerFigures) -> ServerFigures:
    """Undo ``figures_to``."""
    return ServerFigures(
        received_nbytes=message.received_nbytes,
        sent_nbytes=message.sent_nbytes,
        requests=message.requests,
        requests_s=message.requests_s,
        cpu_s=message.cpu_s,
        resident_nbytes=message.resident_nbytes,
    )
