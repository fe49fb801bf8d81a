"""Bytes over a TCP connection and nothing else: what the network of this machine gives.

``python -m bench.peers.plain_tcp NBYTES [IDENTITY]`` prints its address. For each byte ``<`` that
comes it sends NBYTES; for each ``>`` it receives so many into memory that is there, and answers one
byte. With the file of an identity all of this is under TLS.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from edl_proto.identity.credentials import Credentials


def main(nbytes: int, identity: str = "") -> None:
    memory = memoryview(bytearray(nbytes))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"127.0.0.1:{listening.getsockname()[1]}", flush=True)
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if identity:
            context = Credentials(Path(identity)).server_context
            connection = context.wrap_socket(connection, server_side=True)
        while wanted := connection.recv(1):
            if wanted == b"<":
                connection.sendall(memory)
            else:
                receive(connection, memory)
                connection.sendall(b".")


def receive(connection: socket.socket, memory: memoryview) -> None:
    """Fill memory."""
    at = 0
    while at < len(memory):
        n = connection.recv_into(memory[at:])
        if not n:
            raise ConnectionError("the other end is gone")
        at += n


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3])
