"""Requests after which an HTTP server must hang up: the suite of all our servers."""

from __future__ import annotations

import socket

_WAIT_S = 200.0
_NEXT = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"

REFUSED: dict[str, bytes] = {
    "body": b"Content-Length: %d\r\n" % len(_NEXT),
    "expected body": b"Expect: 100-continue\r\nContent-Length: 45\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n",
    "hidden chunks": b"Transfer-Encoding: \x0bchunked\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 45\r\n",
    "a length twice": b"Content-Length: 0\r\ncontent-length: 0\r\n",
    "list of lengths": b"Content-Length: 0, 45\r\n",
    "signed length": b"Content-Length: +0\r\n",
    "no length": b"Content-Length:\r\n",
    "length after a space": b"Content-Length : 45\r\n",
    "folded header": b"X: y\r\n Content-Length: 45\r\n",
    "line without colon": b"x\r\nContent-Length: 45\r\n",
    "bare CR": b"X: y\rContent-Length: 45\r\n",
    "bare LF": b"X: y\nZ: z\r\n",
    "end by bare LF": b"\n",
    "NUL": b"X: \0\r\n",
    "two hosts": b"Host: 127.0.0.1\r\n",
}
"""Headers of a request that has a body, or that two readers could read in two ways."""

_LINES = (b"GET {path} HTTP/1.1", b"HEAD {path} HTTP/1.1", b"POST {path} HTTP/1.1")
_OTHER_LINES = (b"GET\t{path} HTTP/1.1", b"GET {path}\x0bHTTP/1.1")


def count_answers(port: int, request: bytes) -> int:
    """Return how many answers there are to bytes and to a request right after them.

    The server has hung up then, or has answered both.
    """
    with socket.create_connection(("127.0.0.1", port), _WAIT_S) as connection:
        connection.sendall(request + _NEXT)
        connection.shutdown(socket.SHUT_WR)
        answers = b""
        try:
            while octets := connection.recv(65536):
                answers += octets
        except ConnectionResetError:  # it has not read what we sent
            pass
    return answers.count(b"HTTP/1.")


def check_framing(port: int, path: str) -> None:
    """Check that a server answers each such request once.

    Args:
        path: of something that the server has.
    """
    for line in (*_LINES, *_OTHER_LINES):
        for name, fields in REFUSED.items() if line in _LINES else {"line": b""}.items():
            request = line.replace(b"{path}", path.encode()) + b"\r\nHost: localhost\r\n" + fields
            assert count_answers(port, request + b"\r\n") == 1, (name, line)
