"""Records from an object store next to a plain download of the same bytes from the same server.

The server is a process of its own on loopback that speaks as much of S3 as reading needs, from
memory, and adds a latency to every request. The plain download is one request for the whole
object, read into the same memory again and again, which no use of the bytes can beat; s3fs brings
the object as its users get it; a naive reader asks for one chunk after another.

Over loopback a download is as fast as the processor copies, which no network is. So the server also
sends as much as a line of 10 Gbit/s carries, all its connections together.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import recordio
from bench.measure import compare, run_module
from recordio import allocator

RUNS, RECORD, RECORDS = 7, 3_000, 80_000
LATENCY_MS = 20
LINE_MB_PER_S = 1250.0
_PIECE = 256 << 10
PLACE = "bucket/data.recordio"


def measures() -> list[dict[str, Any]]:
    """Bytes per second of the whole object, near and far."""
    found = []
    allocator.keep_freed_memory()  # as workers do
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data.recordio")
        index = _write(path)
        size = os.path.getsize(path)
        for latency_ms, line in ((0, 0.0), (LATENCY_MS, 0.0), (LATENCY_MS, LINE_MB_PER_S)):
            with _serving(path, latency_ms, line) as url:
                ours = partial(_records, recordio.open_source(f"s3://{PLACE}"), size)
                over = f", over {line / 125:.0f} Gbit/s" if line else ""
                peers: list[tuple[str, Callable[[], int], float]] = [
                    ("plain download", partial(_download, url, size), 0.9)
                ]
                if latency_ms and not line:
                    peers += [
                        ("s3fs, the whole object", _s3fs, 3.0),
                        ("a request for each chunk", partial(_naive, url, index, size), 3.0),
                    ]
                found += [
                    compare(
                        f"records from a store, {latency_ms} ms away{over}",
                        "MB/s",
                        _rate(ours, size),
                        peer,
                        _rate(read, size),
                        runs=RUNS,
                        target=target,
                    ).to_json()
                    for peer, read, target in peers
                ]
    return found


def _write(path: str) -> recordio.Index:
    chance = random.Random(1)
    with recordio.Writer(path, compressor="none") as writer:
        for _ in range(RECORDS):
            writer.write(chance.randbytes(RECORD + chance.randrange(-500, 500)))
    return recordio.open_source(path).index()


def _rate(read: Callable[[], int], size: int) -> Callable[[], float]:
    def run() -> float:
        begun = time.perf_counter()
        got = read()
        seconds = time.perf_counter() - begun
        if got < size * 0.99:
            raise RuntimeError(f"{got} bytes instead of {size}")
        return size / seconds / 1e6

    run()
    return run


def _records(source: recordio.Source, end: int) -> int:
    """Reads as a worker reads a task: it knows the file, and where the range begins and ends."""
    blocks = source.read_blocks(0, RECORDS, hint=(0, 0), end=end, exact=True)
    return sum(sum(map(len, block)) for block in blocks)


def _download(url: str, size: int) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", f"/{PLACE}")
    answer = connection.getresponse()
    buffer, got = memoryview(bytearray(1 << 20)), 0
    while more := answer.readinto(buffer):
        got += more
    connection.close()
    return got


def _s3fs() -> int:
    import s3fs

    return len(s3fs.S3FileSystem().cat_file(PLACE))


def _naive(url: str, index: recordio.Index, size: int) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    ends = [*index.offsets[1:], size]
    got = 0
    for start, stop in zip(index.offsets, ends, strict=True):
        connection.request("GET", f"/{PLACE}", headers={"Range": f"bytes={start}-{stop - 1}"})
        got += len(connection.getresponse().read())
    connection.close()
    return got


@contextmanager
def _serving(path: str, latency_ms: int, line_mb_per_s: float) -> Iterator[str]:
    import s3fs

    server = "bench.stores", "--serve", path, str(latency_ms), str(line_mb_per_s)
    with run_module(*server) as url:
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
        }
        s3fs.S3FileSystem.clear_instance_cache()
        yield url


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def __init__(self, path: str, latency_s: float, line_mb_per_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path, self.latency_s = path, latency_s
        self._bytes_per_s = line_mb_per_s * 1e6
        self._line, self._free_at = threading.Lock(), 0.0
        self.size = os.path.getsize(path)
        self.etag = f'"{hashlib.md5(path.encode()).hexdigest()}"'

    def send(self, connection: socket.socket, start: int, stop: int) -> None:
        """Send a range of the object, as fast as the line has room for it."""
        with open(self.path, "rb") as file:
            if not self._bytes_per_s:
                connection.sendfile(file, start, stop - start)
                return
            for at in range(start, stop, _PIECE):
                nbytes = min(_PIECE, stop - at)
                with self._line:
                    now = time.monotonic()
                    self._free_at = max(self._free_at, now) + nbytes / self._bytes_per_s
                    wait_s = self._free_at - now
                # Sleeps are too coarse for one piece: the line may be a little ahead.
                if wait_s > 0.002:
                    time.sleep(wait_s)
                connection.sendfile(file, at, nbytes)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves ranges of one object."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as stores do: the end of an answer would wait for 40 ms
    server: _Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, body: bool) -> None:
        server = self.server
        time.sleep(server.latency_s)
        if urlsplit(self.path).path != f"/{PLACE}":
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, stop = 0, server.size
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1, server.size)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{server.size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", server.etag)
        self.send_header("Last-Modified", formatdate(0, usegmt=True))
        self.end_headers()
        if body:
            server.send(self.connection, start, stop)


def _serve(path: str, latency_ms: str, line_mb_per_s: str) -> None:
    server = _Server(path, float(latency_ms) / 1000, float(line_mb_per_s))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(*sys.argv[2:])
    else:
        from bench.__main__ import main

        sys.argv[1:1] = ["stores"]
        sys.exit(main())
