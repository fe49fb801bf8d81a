"""Channels as all pieces make them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from concurrent import futures

import grpc

from edl_proto.transport import channels


class _Greeter(grpc.GenericRpcHandler):
    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if call.method.endswith("Stream"):
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)
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
            assert channel.unary_unary("/a.Service/Echo")(b"here", timeout=200) == b"here"
    finally:
        server.stop(None)
        busy.close()


def test_no_stream_outlives_its_deadline_when_servers_come_and_go() -> None:
    """Each of these calls is in flight, or about to be, when its server ends."""

    def start(port: int) -> tuple[grpc.Server, int]:
        server = grpc.server(futures.ThreadPoolExecutor(16), options=channels.SERVER_OPTIONS)
        server.add_generic_rpc_handlers((_Greeter(),))
        port = channels.add_port(server, f"127.0.0.1:{port}")
        server.start()
        return server, port

    server, port = start(0)
    over = threading.Event()
    channel = channels.connect(f"127.0.0.1:{port}")
    answered = [0] * 8

    def call_again_and_again(caller: int) -> None:
        while not over.is_set():
            with contextlib.suppress(grpc.RpcError):
                for _ in channel.stream_stream("/a.Service/Stream")(iter([b"a", b"b"]), timeout=1):
                    answered[caller] += 1
            time.sleep(0.001)

    threads = [
        threading.Thread(target=call_again_and_again, args=(caller,), daemon=True)
        for caller in range(8)
    ]
    try:
        for thread in threads:
            thread.start()
        end, deadline = time.monotonic() + 4, time.monotonic() + 200
        # On a busy machine a caller may need longer for its first answer.
        while time.monotonic() < end or (not all(answered) and time.monotonic() < deadline):
            time.sleep(0.05)
            server.stop(None).wait()
            server, _ = start(port)
        over.set()
        deadline = time.monotonic() + 200
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads)
        assert all(answered)
    finally:
        channel.close()
        server.stop(None)
