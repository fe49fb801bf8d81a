"""What answers in the place of a store: pages for browsers, and redirects to other servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import pytest

from recordio.storage.store_errors import reason_of, remedy_of
from recordio.storage.stores import filesystem


class Server:
    """Answers every request alike.

    Attributes:
        requests: method, path and names of headers of each so far.
    """

    def __init__(self, host: str, status: int, headers: dict[str, str], content: bytes) -> None:
        self.requests: list[tuple[str, str, set[str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append((self.command, self.path, set(self.headers)))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value + self.path if name == "Location" else value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(params=["s3"])
def scheme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    fsspec.get_filesystem_class(request.param).clear_instance_cache()
    yield request.param
    fsspec.get_filesystem_class(request.param).clear_instance_cache()


def store(monkeypatch: pytest.MonkeyPatch, scheme: str, url: str) -> tuple[Any, str]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    return filesystem(f"{scheme}://bucket/name")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_request_follows_a_redirect_to_another_server(
    monkeypatch: pytest.MonkeyPatch, scheme: str, status: int
) -> None:
    other = Server("localhost", 200, {}, b"{}")
    here = Server("127.0.0.1", status, {"Location": other.url}, b"")
    system, path = store(monkeypatch, scheme, here.url)
    for action in (system.cat_file, system.ls):
        with pytest.raises(Exception, match="sends requests on to localhost") as caught:
            action(path)
        assert "the store cannot be reached: it sends" in reason_of(caught.value)
        assert "Check the network" in remedy_of(caught.value)
    assert here.requests
    assert not other.requests
    here.close()
    other.close()


def test_of_a_page_for_browsers_nothing_is_shown() -> None:
    reason = reason_of(PermissionError(f"Forbidden <html><body>{'<p>log in</p>' * 1000}"))
    assert reason == "the store denies access: Forbidden (a page for browsers)"


def test_long_words_of_a_store_are_cut() -> None:
    assert len(reason_of(OSError("x" * 1_000_000))) < 400
