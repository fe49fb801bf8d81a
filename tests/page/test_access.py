"""In a real browser, the owner of a page gets in by a click; other sites never do."""

from __future__ import annotations

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from page import jobs
from page.browser import Chromium, Tab
from page.conftest import SHOWN, Serve, Visit
from page.serving import PageServer

WAIT_S = 200.0
JOB_SHOWN = f"{SHOWN} && document.getElementById('job-name').innerText === 'mnist-digits'"


class OtherSite:
    """A second server on this machine, of a user who knows every address of the page.

    Attributes:
        cookies: what browsers have sent it.
    """

    def __init__(self) -> None:
        self.cookies: list[str] = []
        self.content = ""
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.cookies.append(self.headers.get("Cookie", ""))
                content = site.content.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def other() -> Iterator[OtherSite]:
    site = OtherSite()
    yield site
    site.close()


@pytest.fixture
def tabs(chromium: Chromium) -> Iterator[Callable[[str], Tab]]:
    opened: list[Tab] = []

    def start(url: str) -> Tab:
        opened.append(chromium.open(url))
        return opened[-1]

    yield start
    for tab in opened:
        tab.close()


@pytest.fixture
def server(serve: Serve) -> PageServer:
    return serve(*jobs.training(74.0))


def history(tab: Tab) -> list[str]:
    return [entry["url"] for entry in tab.call("Page.getNavigationHistory")["entries"]]


def test_a_click_leads_to_the_page_and_the_token_is_left_behind(
    server: PageServer, tabs: Callable[[str], Tab]
) -> None:
    link = server.link()
    token = link.partition("token=")[2]
    tab = tabs(link)
    tab.wait_for(JOB_SHOWN, WAIT_S)
    assert tab.evaluate("location.href") == server.url.rstrip("/") + server.key.home
    assert tab.evaluate("document.cookie") == ""
    assert tab.evaluate("document.referrer") == ""
    assert not [url for url in history(tab) if token in url]
    # The same link again, in the same browser; elsewhere it is worth nothing.
    again = tabs(link)
    again.wait_for(JOB_SHOWN, WAIT_S)
    elsewhere = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with pytest.raises(urllib.error.HTTPError) as caught:
        elsewhere.open(link, timeout=WAIT_S)
    with caught.value:
        assert caught.value.code == 403
        assert "edl dashboard mnist-digits" in caught.value.read().decode()
    # The page goes on when it is loaded anew.
    tab.evaluate("location.reload()")
    tab.wait_for(JOB_SHOWN, WAIT_S)


def test_a_wrong_link_shows_how_to_get_a_right_one(
    server: PageServer, tabs: Callable[[str], Tab]
) -> None:
    tab = tabs(f"{server.url}?token=wrong")
    tab.wait_for("document.querySelector('code') !== null", WAIT_S)
    assert tab.text("code") == "edl dashboard NAME"
    assert "mnist" not in tab.evaluate("document.documentElement.outerHTML")


def test_a_link_on_the_page_of_another_site_works_twice(
    server: PageServer, other: OtherSite, tabs: Callable[[str], Tab]
) -> None:
    link = server.link()
    other.content = f'<!doctype html><a id="link" href="{link}">page</a>'
    for _ in range(2):
        # By this name it is another site: strict cookies are kept back when the link is clicked.
        tab = tabs(f"http://localhost:{other.port}/")
        tab.wait_for("document.getElementById('link') !== null", WAIT_S)
        tab.tap("#link")
        tab.wait_for(JOB_SHOWN, WAIT_S)
        assert not [url for url in history(tab) if "token=" in url]


def test_another_server_of_this_machine_sees_neither_page_nor_cookie(
    server: PageServer, other: OtherSite, tabs: Callable[[str], Tab], visit: Visit
) -> None:
    visit(server)
    other.content = "<!doctype html><title>other</title><body></body>"
    tab = tabs(f"http://127.0.0.1:{other.port}/")
    tab.wait_for("document.body !== null", WAIT_S)
    home = server.url.rstrip("/") + server.key.home
    for mode in ("cors", "no-cors"):
        found = tab.evaluate(
            f"fetch('{home}api/status', {{mode: '{mode}', credentials: 'include'}})"
            ".then(answer => answer.text(), error => 'refused')"
        )
        assert found in ("refused", ""), mode
    framed = tab.evaluate(
        "new Promise(done => {"
        "const frame = document.createElement('iframe');"
        f"frame.onload = () => done(frame.contentDocument?.body.innerText ?? '');"
        f"frame.src = '{home}'; document.body.append(frame); }})"
    )
    assert "mnist" not in framed
    loaded = tab.evaluate(
        "new Promise(done => {"
        "const script = document.createElement('script');"
        "script.onload = () => done(true); script.onerror = () => done(false);"
        f"script.src = '{home}page.js'; document.body.append(script); }})"
    )
    assert loaded is False
    assert other.cookies
    assert not any("edl-page" in cookie for cookie in other.cookies)
