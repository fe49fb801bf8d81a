"""What answers in the place of a store: pages for browsers, and redirects to other servers."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from recordio.errors import UnreadableFile
from recordio.patterns import expand
from recordio.storage.files import reading
from recordio.storage.store_errors import is_transient, reason_of, remedy_of
from recordio.storage.stores import filesystem, open_object

pytestmark = pytest.mark.product


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: clients that have read enough close their connections."""


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

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(params=["s3", "gs"])
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
        assert reason_of(caught.value) == (
            "the store cannot be reached: it sends requests on to localhost"
        )
        assert "Check the network" in remedy_of(caught.value)
        assert not is_transient(caught.value)
    assert len(here.requests) == 2  # one for each action: nothing is tried again
    assert not other.requests
    here.close()
    other.close()


PAGE = b"<html><body>" + b"<p>Please log in to the network of this hotel</p>\n" * 200_000


async def at_once(seconds: float) -> None:
    """Instead of the pauses of gcsfs, half a minute for each question."""


def ask_web_server(
    monkeypatch: pytest.MonkeyPatch, scheme: str, status: int, headers: dict[str, str]
) -> Iterator[tuple[str, Exception, int]]:
    """Yield the error that each question to a web server ends with, and its number of requests."""
    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=at_once))
    monkeypatch.setattr("recordio.storage.stored_file.RETRY_S", 1.0)
    server = Server("127.0.0.1", status, {"Content-Type": "text/html", **headers}, PAGE)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    for name, ask in (
        ("find", lambda: expand(f"{scheme}://bucket/*.csv")),
        ("list", lambda: expand(f"{scheme}://bucket/folder/")),
        ("open", lambda: open_object(f"{scheme}://bucket/x.csv")),
        ("read", lambda: read(f"{scheme}://bucket/x.csv")),
    ):
        before = len(server.requests)
        with pytest.raises(Exception, match=r".") as caught:
            ask()
        yield name, caught.value, len(server.requests) - before
    server.close()


def read(uri: str) -> bytes:
    with reading(uri) as (file, _):
        return bytes(file.read(100))


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, "what answers there is no store: it sends pages for browsers"),
        (403, "the store denies access"),
        (500, "the store failed"),
    ],
)
def test_a_page_for_browsers_is_one_short_sentence_soon(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    scheme: str,
    status: int,
    reason: str,
) -> None:
    for name, error, requests in ask_web_server(monkeypatch, scheme, status, {}):
        said = reason_of(error)
        assert said.startswith(reason), name
        assert not re.search("log in|operation", said), name
        assert len(said) < 80, name
        assert requests <= (60 if status == 500 else 8), name
    out, err = capfd.readouterr()
    assert out + err == ""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_store_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, scheme: str, silent: str
) -> None:
    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=at_once))
    monkeypatch.setattr("recordio.storage.foreign_answers._SILENCE_S", 0.1)
    monkeypatch.setattr("s3fs.core.S3FileSystem.read_timeout", 0.1)
    monkeypatch.setattr("recordio.storage.stored_file.RETRY_S", 0.5)
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", silent)
    with pytest.raises(UnreadableFile) as caught:
        read(f"{scheme}://bucket/x.csv")
    assert reason_of(caught.value).startswith(("the store cannot be reached", "the store does not"))


def test_a_client_and_its_connections_are_used_again(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    first, _ = store(monkeypatch, scheme, "http://127.0.0.1:1")
    assert filesystem(f"{scheme}://bucket/other")[0] is first


def test_options_of_the_user_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"session_kwargs": {"trust_env": True}, "requests_timeout": 7}
    monkeypatch.setitem(fsspec.config.conf, "gs", own)
    system, _ = store(monkeypatch, "gs", "http://127.0.0.1:1")
    assert system.session_kwargs["trust_env"] is True
    assert system.session_kwargs["trace_configs"]
    assert system.requests_timeout == 7


def test_a_log_line_of_a_client_is_cut(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store(monkeypatch, "gs", "http://127.0.0.1:1")
    logging.getLogger("gcsfs").error("out of retries: %s", "x" * 1_000_000, exc_info=True)
    assert 1_000 <= len(caplog.text) < 1_200
