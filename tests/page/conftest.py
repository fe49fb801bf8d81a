"""Opens the page of made-up jobs in one headless Chromium and watches what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from edl_proto.v1.job_pb2 import Event, JobStatus
from edl_testing.requirements import do_without
from page.browser import Chromium, Tab, find_chromium
from page.serving import PageServer

Serve = Callable[..., PageServer]
Visit = Callable[..., Tab]

SHOWN = "!document.getElementById('main').hidden"
ALL_ANSWERED = "performance.getEntriesByName(new URL('api/timeline', location).href).length > 0"
"""The timeline comes last; what is below it moves down then, away from a pointer."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The page's tests are short: last, they keep all processes busy to the end."""
    items.sort(key=lambda item: Path(__file__).parent in item.path.parents)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    if find_chromium() is None:
        do_without("Chromium is not installed (apt install chromium)")
    with Chromium() as browser:
        yield browser


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers of made-up jobs: ``serve(status, events)``."""
    servers: list[PageServer] = []

    def start(status: JobStatus, events: Sequence[Event] = (), port: int = 0) -> PageServer:
        servers.append(PageServer(status, events, port))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def visit(chromium: Chromium) -> Iterator[Visit]:
    """Opens pages: ``visit(server, width=…)``; afterwards none may have complained or strayed.

    ``may_lose_master`` allows the browser's own notes about requests that failed.
    """
    visited: list[tuple[Tab, str, bool]] = []

    def start(
        server: PageServer,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        mobile: bool = False,
        may_lose_master: bool = False,
        ready: str = f"{SHOWN} && {ALL_ANSWERED}",
    ) -> Tab:
        tab = chromium.open(
            server.link(), width=width, height=height, dark=dark, mobile=mobile, timezone="UTC"
        )
        visited.append((tab, server.url, may_lose_master))
        tab.wait_for(ready)
        return tab

    yield start
    for tab, home, may_lose_master in visited:
        complaints = list(tab.complaints)
        if may_lose_master:
            complaints = [c for c in complaints if "Failed to load resource" not in c]
        strays = [url for url in tab.requests if not url.startswith(home)]
        tab.close()
        assert complaints == [], "the page complained on the console"
        assert strays == [], "the page asked for something outside its origin"
