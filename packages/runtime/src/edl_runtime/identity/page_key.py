"""The key of a job's page, which signs the links and sessions that open the page.

The key is a file that only the job's user can read, or an entry of the job's Secret. Its holders
make links without asking the master; the master, and every later one, recognizes them. A link is
worth a session in one browser. The page itself is below a path that follows from the key: browsers
send a cookie to every port of a host, but only with requests below the cookie's path. The paths of
all pages begin alike, so that what publishes a page can leave out the rest of its port.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from edl_runtime.files import replace_file

PAGES = "/page"
"""Every page is below this path."""

LINK_LIFETIME_S = 24 * 3600
"""How long a link is valid."""

SESSION_LIFETIME_S = 30 * 24 * 3600
"""How long the session of a browser that has used a link lasts."""

_CLOCK_TOLERANCE_S = 3600
"""How far the clock of the machine that makes a link may be ahead."""

_KEY, _METRICS_TOKEN = "key", "metrics-token"
_TIME_BYTES, _RANDOM_BYTES, _MAC_BYTES = 5, 7, 18
_MAX_KEY_BYTES = 256
"""Limit on the bytes of a key's file."""


class PageKey:
    """The key of one job's page.

    Args:
        text: at least 32 characters.

    Raises:
        ValueError: it is shorter.
    """

    def __init__(self, text: str) -> None:
        if len(text) < 32:
            raise ValueError("the key of a page has at least 32 characters")
        self.text = text

    @classmethod
    def create(cls) -> PageKey:
        """Create a new key."""
        return cls(secrets.token_urlsafe(32))

    @classmethod
    def read(cls, folder: Path) -> PageKey | None:
        """Read the key in a folder; None if there is none, or if it cannot be trusted."""
        try:
            # The folder may be a container's, too: neither a link nor a pipe is followed.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(folder / _KEY, flags), "rb") as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o077:
                    return None
                return cls(file.read(_MAX_KEY_BYTES).decode("ascii"))
        except (OSError, ValueError):
            return None

    @classmethod
    def provide(cls, folder: Path, given: str = "") -> PageKey:
        """Return the key in a folder, created if missing, next to the token of the metrics.

        Args:
            given: the key to use.

        Raises:
            OSError: the folder cannot be written.
        """
        found = cls.read(folder)
        key = cls(given) if given else found or cls.create()
        if found is not None and found.text == key.text and metrics_token_file(folder).exists():
            return key
        if folder.is_symlink():  # of a container, which could write into the job's directory
            folder.unlink()
        folder.mkdir(0o700, exist_ok=True)
        token = key.metrics_token.encode("ascii")
        replace_file(metrics_token_file(folder), token, is_private=True)
        replace_file(folder / _KEY, key.text.encode("ascii"), is_private=True)
        return key

    @property
    def home(self) -> str:
        """The path of the page, with a slash at both ends."""
        return f"{PAGES}/{_encode(self._mac('home', b'')[:12])}/"

    @property
    def metrics_token(self) -> str:
        """The token that gives scrapers the metrics, and nothing else."""
        return self._mac("metrics", b"").hex()

    def link(self, url: str, now: float) -> str:
        """Return a URL that opens the page once.

        Args:
            url: of the page, with a slash at the end.
            now: seconds since the epoch.
        """
        return f"{url}?token={self._issue('link', now)}"

    def is_link(self, token: str) -> bool:
        """Tell whether a token is that of a link, however old."""
        return self._issue_time("link", token) is not None

    def is_fresh_link(self, token: str, now: float) -> bool:
        """Tell whether the link of a token is still valid."""
        made = self._issue_time("link", token)
        return made is not None and _is_young(made, now, LINK_LIFETIME_S)

    def session(self, now: float) -> str:
        """Return the value of a cookie that lets a browser in."""
        return self._issue("session", now)

    def is_session(self, value: str, now: float) -> bool:
        """Tell whether a cookie lets its browser in."""
        made = self._issue_time("session", value)
        return made is not None and _is_young(made, now, SESSION_LIFETIME_S)

    def _issue(self, purpose: str, now: float) -> str:
        while True:
            content = int(now).to_bytes(_TIME_BYTES, "big") + secrets.token_bytes(_RANDOM_BYTES)
            text = _encode(content + self._mac(purpose, content))
            if text[-1].isalnum():  # some terminals leave another last character out of a URL
                return text

    def _issue_time(self, purpose: str, text: str) -> int | None:
        """Return when this key issued a text, in seconds since the epoch; None if it did not."""
        try:
            octets = base64.b64decode(text.encode("ascii"), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        content, mac = octets[:-_MAC_BYTES], octets[-_MAC_BYTES:]
        genuine = hmac.compare_digest(mac, self._mac(purpose, content))
        if not genuine or len(content) != _TIME_BYTES + _RANDOM_BYTES:
            return None
        if _encode(octets) != text:  # more padding: the same link must not be another text
            return None
        return int.from_bytes(content[:_TIME_BYTES], "big")

    def _mac(self, purpose: str, content: bytes) -> bytes:
        key = self.text.encode("ascii")
        message = purpose.encode("ascii") + b"\0" + content
        return hmac.new(key, message, hashlib.sha256).digest()[:_MAC_BYTES]


def metrics_token_file(folder: Path) -> Path:
    """Return the file of the metrics' token, for Prometheus' ``credentials_file``."""
    return folder / _METRICS_TOKEN


def _is_young(made: int, now: float, lifetime_s: float) -> bool:
    return -_CLOCK_TOLERANCE_S <= now - made <= lifetime_s


def _encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode("ascii").rstrip("=")
