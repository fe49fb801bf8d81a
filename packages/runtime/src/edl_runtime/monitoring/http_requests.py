"""Parses HTTP requests, and refuses those that a proxy could read in another way."""

from __future__ import annotations

import io
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

_REQUEST_LINE = re.compile(rb"[A-Z]+ [^\x00-\x20\x7f]+ HTTP/1\.[01]\r\n")
_FIELD_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[^\x00\r\n]*\r\n")
_END_OF_HEAD = b"\r\n"
_ONLY_ONCE = (b"content-length", b"host")

# Those of http.client, which refuses what is longer.
_MAX_LINE_BYTES = 65536
_MAX_LINES = 101


class RequestHandler(BaseHTTPRequestHandler):
    """Answers requests without a body; refuses others, and closes the connection.

    A proxy sends the requests of many clients through one connection. What it takes for a body, or
    for a part of a header, must never be read as the next request: its answer would go to another
    client. So a request that could be read in two ways is refused, too.
    """

    raw_requestline: bytes

    def parse_request(self) -> bool:
        """Read a request, and refuse a bad one; return whether there is still one to answer."""
        lines = self._read_head()
        rest, self.rfile = self.rfile, io.BytesIO(b"".join(lines))
        try:
            is_valid = super().parse_request()
        finally:
            self.rfile = rest
        if is_valid and (reason := _find_fault(self.raw_requestline, lines)):
            self.send_error(HTTPStatus.BAD_REQUEST, reason)
            return False
        return is_valid

    def handle_expect_100(self) -> bool:
        """Ask for no body."""
        return True

    def _read_head(self) -> list[bytes]:
        """The lines after the first one, up to the end of the head or to what is too long."""
        lines: list[bytes] = []
        while len(lines) <= _MAX_LINES:
            lines.append(self.rfile.readline(_MAX_LINE_BYTES + 1))
            if lines[-1] in (_END_OF_HEAD, b"\n", b"") or len(lines[-1]) > _MAX_LINE_BYTES:
                break
        return lines


def _find_fault(request: bytes, lines: list[bytes]) -> str:
    """Return why a request is refused; nothing if all readers find the same, and no body."""
    fields = [_FIELD_LINE.fullmatch(line) for line in lines[:-1]]
    if not (_REQUEST_LINE.fullmatch(request) and all(fields) and lines[-1] == _END_OF_HEAD):
        return "Malformed request"
    names = [field[1].lower() for field in fields if field]
    if any(names.count(name) > 1 for name in _ONLY_ONCE):
        return "Repeated header"
    lengths = (line for line, name in zip(lines, names, strict=False) if name == b"content-length")
    if b"transfer-encoding" in names or any(_length(line) != b"0" for line in lengths):
        return "Requests have no body here"
    return ""


def _length(line: bytes) -> bytes:
    return line.partition(b":")[2].strip(b" \t\r\n")
