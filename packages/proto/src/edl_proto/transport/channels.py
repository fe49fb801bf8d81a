"""The settings of gRPC channels and servers, which all services share."""

from __future__ import annotations

import grpc
from grpc.experimental import ChannelOptions

from edl_proto.file_limit import share
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Peer, channel_credentials

_MEGABYTE = 1 << 20
_MAX_CONNECTIONS = 8192

# Keepalive: a peer that vanished without closing its connection (power loss, cut network) is
# noticed within about 10 s + 5 s. A message is bounded: large values are sent as frames.
_COMMON: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 16 * _MEGABYTE),
    ("grpc.max_send_message_length", 16 * _MEGABYTE),
)

CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    # A master that restarts is found again within half a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name, how long one attempt may take: a peer that is busy, or far away, needs
    # more than the pause between attempts for its handshakes.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # All calls that are safe to repeat are repeated by their callers. gRPC's own retries lose
    # streams: where a server goes away before it has seen one, and cannot be reached then, the
    # call gets its status but never ends its reads, whatever its deadline (gRPC 1.85).
    ("grpc.enable_retries", 0),
    # Local processes must never be reached through a proxy of the environment.
    ("grpc.enable_http_proxy", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # A silent connection is closed: each connection takes an open file of the process.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Two servers on one port would share its calls at random.
    ("grpc.so_reuseport", 0),
)


def connection_limit() -> tuple[str, int]:
    """Return the server option that limits the open connections; further ones are closed."""
    return "grpc.max_allowed_incoming_connections", share(2, _MAX_CONNECTIONS)


def connect(address: str, peer: Peer | None = None) -> grpc.Channel:
    """Open a channel to ``host:port`` with edl's settings.

    Args:
        peer: the process that must be there, which learns who calls; None: an insecure channel.
    """
    if peer is None:
        return grpc.insecure_channel(address, options=CLIENT_OPTIONS)
    options = (
        *CLIENT_OPTIONS,
        ("grpc.ssl_target_name_override", peer.host),
        # With TLS, gRPC's other kind of stream hangs when Ctrl-C interrupts it.
        (ChannelOptions.SingleThreadedUnaryStream, 1),
    )
    return grpc.secure_channel(address, channel_credentials(peer.credentials), options)


def add_port(server: grpc.Server, address: str, access_control: AccessControl | None = None) -> int:
    """Have a server listen at ``host:port``; returns the port.

    Raises:
        RuntimeError: gRPC cannot listen there.
    """
    return (
        server.add_insecure_port(address)
        if access_control is None
        else access_control.add_port(server, address)
    )
