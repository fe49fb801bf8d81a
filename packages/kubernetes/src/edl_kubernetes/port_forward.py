"""Forwards a port of this machine to a pod, through the API server."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edl_kubernetes.cluster.api import KubernetesApi

_HEADER = 1
"""Every message begins with the number of its channel: 0 is data, 1 is an error."""
_CHUNK = 1 << 16
_CLOSE_S = 1.0
_RETRY_PAUSE_S = 0.2


class PortForward:
    """Listens until ``close``; each connection has a web socket of its own.

    Args:
        api: the API server.
        pod: the path of the pod in the API.
        port: the port of the pod.
        local_port: the port of this machine; 0 for any free one.

    Raises:
        OSError: the local port is in use.
    """

    def __init__(self, api: KubernetesApi, pod: str, port: int, local_port: int = 0) -> None:
        self._api = api
        self._path = f"{pod}/portforward"
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", local_port))
        self._closed = threading.Event()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="port-forward", daemon=True).start()

    def close(self) -> None:
        """Stop listening; open connections last until their users close them."""
        self._closed.set()
        # A blocked accept does not notice that its socket is closed.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed.wait(_RETRY_PAUSE_S):
                    return
                continue  # a temporary error, such as too many open files
            threading.Thread(
                target=self._serve, args=(connection,), name="port-forward-open", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                web_socket = self._api.web_socket(self._path, {"ports": str(self._port)})
            except Exception:
                return  # the caller sees that the connection ends, and connects again
            up = threading.Thread(
                target=_send, args=(connection, web_socket), name="port-forward-up", daemon=True
            )
            up.start()
            _receive(web_socket, connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            up.join(_CLOSE_S)


def _send(connection: socket.socket, web_socket: Any) -> None:
    """Copy what this machine sends to the pod."""
    from websocket import ABNF, WebSocketException

    with contextlib.suppress(OSError, WebSocketException):
        while content := connection.recv(_CHUNK):
            web_socket.send(b"\0" + content, ABNF.OPCODE_BINARY)
    # A web socket cannot be closed in one direction only; gRPC and HTTP do not need that.
    with contextlib.suppress(OSError, WebSocketException):
        web_socket.close(timeout=_CLOSE_S)


def _receive(web_socket: Any, connection: socket.socket) -> None:
    """Copy what the pod sends to this machine."""
    from websocket import ABNF, WebSocketException

    greeted = set()
    with contextlib.suppress(OSError, WebSocketException):
        while True:
            opcode, message = web_socket.recv_data()
            if opcode == ABNF.OPCODE_CLOSE:
                return
            if not message:
                continue
            channel, content = message[0], message[_HEADER:]
            if channel not in greeted:
                greeted.add(channel)  # the first message of a channel has the number of the port
            elif channel == 0:
                connection.sendall(content)
            elif content:
                return
