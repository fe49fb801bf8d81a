"""Access control for the page of a job and its metrics, before anything is looked up.

A link (``edl_runtime.identity.page_key``) is exchanged for a cookie once. A second click on the
same link leads to the page, where the cookie of the browser decides.
"""

from __future__ import annotations

import hmac
import html
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from edl_master.adapters.storage_errors import storage_error
from edl_runtime.identity.page_key import SESSION_LIFETIME_S, PageKey
from edl_runtime.local import job_directory

log = logging.getLogger(__name__)

HEALTH, READINESS, METRICS = "/healthz", "/readyz", "/metrics"
"""Paths outside the page: the first two are public and reveal nothing about the job."""

_COOKIE = "edl-page"
_USED_LINKS = "used-links"

_GUESSES = 60
_GUESS_WINDOW_S = 60.0

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
"""Kinds of content."""

_CLOSED = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>edl: this page is closed</title>{again}</head>
<body>
<h1>This page is for the owner of its job</h1>
<p>A link opens it once, in one browser, and within a day. You came without one, or it has been
used, or it is too old.</p>
<p>This command prints a new link: <code>edl dashboard {job}</code></p>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parts of a request that decide whether it is allowed.

    Attributes:
        target: path and query.
        headers: by name, as in ``Sec-Fetch-Site``.
        is_get: false for a request that must change nothing.
    """

    target: str
    headers: Mapping[str, str]
    is_get: bool = True


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may be answered; ``target`` is below the page's home, with the query."""

    target: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The complete answer to a request that is denied access to the job."""

    status: HTTPStatus
    kind: str = TEXT
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class PageAccess:
    """Decides about the requests to one job's page.

    Args:
        key: of the page.
        folder: where used links are noted, for later masters too.
        job: name of the job, for those who know the page's path.
        open_metrics: whether anyone who reaches the port gets the metrics.
    """

    def __init__(self, key: PageKey, folder: Path, job: str, *, open_metrics: bool = False) -> None:
        self._key = key
        self._home = key.home
        self._job = job
        self._open_metrics = open_metrics
        self._used = _UsedLinks(folder / _USED_LINKS)
        self._guesses = _Guesses()

    @classmethod
    def of_job(cls, job_dir: Path, job: str, *, open_metrics: bool = False) -> PageAccess:
        """That of the job with this directory, which gets a key if it has none.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        folder = job_dir / job_directory.PAGE
        try:
            return cls(PageKey.provide(folder), folder, job, open_metrics=open_metrics)
        except OSError as error:
            raise storage_error(error, folder) from error

    @property
    def metrics_token(self) -> str:
        """The token with which a scraper gets the metrics of the job's processes."""
        return self._key.metrics_token

    def decide(self, request: PageRequest, now: float) -> Granted | Answer:
        """Decide whether to grant a request whose host is right.

        Args:
            now: seconds since the epoch.
        """
        try:
            url = urlsplit(request.target)
        except ValueError:  # such as //[: strangers could fill the log with tracebacks
            return self._deny("NAME")
        if url.path in (HEALTH, READINESS):
            return Granted(url.path)
        if _is_foreign(request.headers):
            return Answer(HTTPStatus.FORBIDDEN, content=b"Another site asked for this.\n")
        if url.path == METRICS:
            return self._metrics(request, now)
        if url.path == "/" and (tokens := parse_qs(url.query).get("token")):
            return self._exchange(tokens[-1], request, now)
        if not url.path.startswith(self._home):
            return self._deny("NAME")
        cookie = _cookie(request.headers)
        if self._key.is_session(cookie, now):
            return Granted(request.target[len(self._home) - 1 :])
        if cookie and not self._guesses.may_fail(now):
            return _TOO_MANY
        # A browser keeps the cookie back if the link was on a page of another site. It gives it to
        # this very page, which asks again.
        return self._deny(self._job, again=request.headers.get("Sec-Fetch-Site") == "cross-site")

    def _metrics(self, request: PageRequest, now: float) -> Granted | Answer:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        own = self._key.metrics_token.encode()
        if self._open_metrics or (
            scheme.lower() == "bearer" and hmac.compare_digest(_octets(token.strip()), own)
        ):
            return Granted(METRICS)
        if token and not self._guesses.may_fail(now):
            return _TOO_MANY
        return Answer(
            HTTPStatus.UNAUTHORIZED,
            content=b"The metrics need a token: page/metrics-token in the job's directory.\n",
            headers={"WWW-Authenticate": 'Bearer realm="edl"'},
        )

    def _exchange(self, token: str, request: PageRequest, now: float) -> Answer:
        if not self._key.is_link(token):
            return self._deny("NAME") if self._guesses.may_fail(now) else _TOO_MANY
        headers = {"Location": self._home}
        fresh = request.is_get and self._key.is_fresh_link(token, now)
        if fresh and self._used.use(token):
            forwarded = request.headers.get("X-Forwarded-Proto", "") == "https"
            headers["Set-Cookie"] = (
                f"{_COOKIE}={self._key.session(now)}; Path={self._home}; "
                f"Max-Age={SESSION_LIFETIME_S}; HttpOnly; SameSite=Strict"
                + ("; Secure" if forwarded else "")
            )
        return Answer(HTTPStatus.SEE_OTHER, headers=headers)

    def _deny(self, job: str, *, again: bool = False) -> Answer:
        refresh = '<meta http-equiv="refresh" content="0">' if again else ""
        text = _CLOSED.format(job=html.escape(job), again=refresh)
        return Answer(HTTPStatus.FORBIDDEN, HTML, text.encode())


_TOO_MANY = Answer(
    HTTPStatus.TOO_MANY_REQUESTS,
    content=b"Too many wrong tokens; a right one is taken at any time.\n",
    headers={"Retry-After": str(int(_GUESS_WINDOW_S)), "Connection": "close"},
)


class _UsedLinks:
    """The tokens of used links, one per line. They open nothing any more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._used: set[str] = set()

    def use(self, token: str) -> bool:
        """Use a link up; False if it is."""
        with self._lock:
            try:
                self._used.update(self._path.read_text().split())
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("cannot tell whether a link of the page was used before: %s", error)
            if token in self._used:
                return False
            self._used.add(token)
            try:
                with self._path.open("a") as file:
                    file.write(f"{token}\n")
            except OSError as error:  # on a full disk the owner still sees why the job stands
                log.warning(
                    "a used link of the page is not saved, and a later master accepts it again: %s",
                    error,
                )
            return True


class _Guesses:
    """Limits wrong guesses, not clients: no stranger can lock the owner out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._since = 0.0

    def may_fail(self, now: float) -> bool:
        """Note a wrong token; False if there were too many of late."""
        with self._lock:
            if not 0 <= now - self._since < _GUESS_WINDOW_S:
                self._since, self._count = now, 0
            self._count += 1
            if self._count == _GUESSES + 1:
                log.warning("%d wrong tokens for the page within a minute", self._count)
            return self._count <= _GUESSES


def _is_foreign(headers: Mapping[str, str]) -> bool:
    """Return whether another origin's page made this request, other than by a link."""
    if (origin := headers.get("Origin")) is not None:
        try:
            if urlsplit(origin).netloc.lower() != headers.get("Host", "").lower():
                return True
        except ValueError:
            return True
    if headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
        return False
    follows = headers.get("Sec-Fetch-Mode") == "navigate"
    return not (follows and headers.get("Sec-Fetch-Dest") == "document")


def _cookie(headers: Mapping[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("Cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
