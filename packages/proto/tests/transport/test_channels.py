"""Channels as all pieces make them."""

from __future__ import annotations

import socket
import threading
import time
from concurrent import futures

import grpc

from edl_proto.transport import channels


class _Greeter(grpc.GenericRpcHandler):
    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(1 << 16):
        target.sendall(data)


def test_a_peer_that_takes_long_to_answer_a_connection_is_reached() -> None:
    """A process on a busy machine accepts at once, and has no time for its handshake."""
    server = grpc.server(futures.ThreadPoolExecutor(1), options=channels.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((_Greeter(),))
    port = channels.add_port(server, "127.0.0.1:0")
    server.start()
    busy = socket.create_server(("127.0.0.1", 0))

    def relay() -> None:
        caller, _ = busy.accept()
        time.sleep(1.5)
        peer = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=_copy, args=(peer, caller), daemon=True).start()
        _copy(caller, peer)

    threading.Thread(target=relay, daemon=True).start()
    try:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        with channels.connect(address) as channel:
            assert channel.unary_unary("/a.Service/Echo")(b"here", timeout=60) == b"here"
    finally:
        server.stop(None)
        busy.close()
