"""A registry that answers what it likes: nothing is believed, kept in memory or waited for."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from edl_registry import registry
from edl_registry.registry import RegistryAccess, RegistryClient, RegistryError, digest_of
from edl_runtime.image_names import Repository

D = digest_of(b"{}")
Answer = tuple[int, dict[str, str], Iterator[bytes]]


@dataclass
class Hostile:
    """A registry on this machine; ``answer`` gets a path and whether it has an authorization."""

    port: int
    answer: Callable[[str, bool], Answer]
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def repository(self) -> Repository:
        return Repository(f"127.0.0.1:{self.port}", "me/zoo")

    def client(self) -> RegistryClient:
        access = RegistryAccess("me", "secret", plain_http=True)
        return RegistryClient({self.repository.registry: access})


def make_server(hostile: list[Hostile]) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (found,) = hostile
            authorization = self.headers.get("Authorization", "")
            found.asked.append((self.path, authorization))
            code, headers, body = found.answer(self.path, bool(authorization))
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in body:
                    self.wfile.write(piece)
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    known: list[Hostile] = []
    server = make_server(known)
    server.daemon_threads = True
    known.append(Hostile(server.server_address[1], lambda path, _: (200, {}, iter([b"{}"]))))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield known[0]
    server.shutdown()
    server.server_close()


def endless() -> Iterator[bytes]:
    while True:
        yield b" " * (1 << 20)


def dripping() -> Iterator[bytes]:
    while True:
        time.sleep(0.05)
        yield b" "


BOMB = gzip.compress(b" " * (64 << 20))


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (lambda: iter([b" " * (10 << 20)]), {}),
        (endless, {}),
        (dripping, {}),
        (lambda: iter([BOMB]), {"Content-Encoding": "gzip"}),
    ],
    ids=["10 MB", "endless", "dripping", "bomb"],
)
@pytest.mark.parametrize("what", ["manifest", "blob", "token"])
def test_no_answer_is_too_large_or_takes_too_long(
    hostile: Hostile,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    body: Callable[[], Iterator[bytes]],
    headers: dict[str, str],
) -> None:
    monkeypatch.setattr(registry, "ANSWER_S", 1.0)
    realm = f'Bearer realm="http://127.0.0.1:{hostile.port}/token"'

    def answer(path: str, is_authorized: bool) -> Answer:
        if what == "token" and not path.startswith("/token"):
            return 401, {"WWW-Authenticate": realm}, iter([])
        return 200, headers, body()

    hostile.answer = answer
    client = hostile.client()
    calls = {"blob": lambda: client.blob(hostile.repository, D, 1 << 20)}
    call = calls.get(what, lambda: client.manifest(hostile.repository, D))
    began = time.monotonic()
    with pytest.raises(RegistryError):
        call()
    assert time.monotonic() - began < 300


@pytest.mark.parametrize(
    "content",
    [
        *("", "null", "[]", "5", "{", "[" * 200_000, '{"token": {}}', '{"token": "a\\nb"}'),
        *('{"token": ""}', '{"token": "\\u00e9"}', json.dumps({"token": "x" * 70_000})),
    ],
    ids=range(11),
)
def test_a_token_of_any_kind(hostile: Hostile, content: str) -> None:
    realm = f'Bearer realm="http://127.0.0.1:{hostile.port}/token"'

    def answer(path: str, is_authorized: bool) -> Answer:
        if path.startswith("/token"):
            return 200, {}, iter([content.encode()])
        return 401, {"WWW-Authenticate": realm}, iter([])

    hostile.answer = answer
    with pytest.raises(RegistryError):
        hostile.client().manifest(hostile.repository, D)
    assert len(hostile.asked) == 2, "no such token is sent"


@pytest.fixture
def metadata() -> Iterator[Hostile]:
    """A server at another address, such as a cloud's metadata, which must not be asked."""
    known: list[Hostile] = []
    server = make_server(known)
    secret = json.dumps({"access_token": "of-the-machine"}).encode()
    known.append(Hostile(server.server_address[1], lambda path, _: (200, {}, iter([secret]))))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield known[0]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirection_leads_nowhere_else_in_the_clear(
    hostile: Hostile, metadata: Hostile, code: int
) -> None:
    place = f"http://127.0.0.1:{metadata.port}/latest/meta-data"
    hostile.answer = lambda path, _: (code, {"Location": place}, iter([]))
    for call in (
        lambda: hostile.client().manifest(hostile.repository, "latest"),
        lambda: hostile.client().blob(hostile.repository, D, 1000),
    ):
        with pytest.raises(RegistryError):
            call()
    assert metadata.asked == []


def test_a_challenge_leads_nowhere_else_in_the_clear(hostile: Hostile, metadata: Hostile) -> None:
    realm = f'Bearer realm="http://127.0.0.1:{metadata.port}/latest/meta-data"'
    hostile.answer = lambda path, _: (401, {"WWW-Authenticate": realm}, iter([]))
    with pytest.raises(RegistryError, match="answered 401"):
        hostile.client().manifest(hostile.repository, "latest")
    assert metadata.asked == []


def test_where_a_blob_lies_is_not_shown_the_password(hostile: Hostile) -> None:
    def answer(path: str, is_authorized: bool) -> Answer:
        if path == "/store":
            return 200, {}, iter([b"{}"])
        if not is_authorized:
            return 401, {"WWW-Authenticate": "Basic"}, iter([])
        return 307, {"Location": "/store"}, iter([])

    hostile.answer = answer
    assert hostile.client().blob(hostile.repository, D, 1000) == b"{}"
    assert hostile.asked[-1] == ("/store", "")


@pytest.mark.parametrize("what", ["other content", "other digest", "no digest"])
def test_what_has_another_digest_is_refused(hostile: Hostile, what: str) -> None:
    other = {"Docker-Content-Digest": "sha256:" + "0" * 64}
    content = b"[]" if what == "other content" else b"{}"
    hostile.answer = lambda path, _: (200, other if what == "other digest" else {}, iter([content]))
    asked = "latest" if what == "other digest" else D
    if what == "no digest":
        assert hostile.client().blob(hostile.repository, D, 1000) == b"{}"
        with pytest.raises(RegistryError):
            hostile.client().blob(hostile.repository, "../../../secret", 1000)
        assert all("secret" not in path for path, _ in hostile.asked)
        return
    with pytest.raises(RegistryError):
        hostile.client().manifest(hostile.repository, asked)
