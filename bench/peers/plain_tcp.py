"""Bytes over a TCP connection and nothing else: what the network of this machine gives.

``python -m bench.peers.plain_tcp NBYTES`` prints its address. For each byte ``<`` that comes it
sends NBYTES; for each ``>`` it receives so many into memory that is there, and answers one byte.
"""

from __future__ import annotations

import socket
import sys


def main(nbytes: int) -> None:
    memory = memoryview(bytearray(nbytes))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"127.0.0.1:{listening.getsockname()[1]}", flush=True)
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
    main(int(sys.argv[1]))
