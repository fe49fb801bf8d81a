"""Refuses answers that do not come from a store: redirects to other servers, and web pages.

aiohttp, which the clients of stores use, would follow redirects, and so disclose names and content
of objects and S3's session token, which another server could use. A web page that a proxy or a
captive portal sends instead would pass for the content of an object.
"""

from __future__ import annotations

import functools
from typing import Any

REDIRECTS = frozenset((301, 302, 303, 307, 308))

_SILENCE_S = 30.0
"""How long a server may be silent after a request of gcsfs, which then repeats it five times."""

_STORE_HEADERS = ("etag", "x-amz", "x-goog", "x-guploader")
"""Prefixes of headers: every object of S3 and Google Cloud Storage has such a header."""


class ForeignAnswer(OSError):
    """The server is not a store, or redirects requests to another server."""


class RedirectRefused(ForeignAnswer):
    """A server redirects requests to another server."""


def google_options(configured: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for gcsfs; none if its HTTP client is not installed.

    Equal settings lead to equal arguments: fsspec keeps a client, with its connections, for each.

    Args:
        configured: the arguments that the user has set for gcsfs.
    """
    try:
        from aiohttp import ClientTimeout
    except ModuleNotFoundError:
        return {}
    # gcsfs sets no timeout, and would wait for a silent server forever.
    timeout = ClientTimeout(sock_connect=_SILENCE_S, sock_read=_SILENCE_S)
    session = {"trace_configs": [_google_trace()], **configured.get("session_kwargs", {})}
    return {
        "session_kwargs": session,
        "requests_timeout": configured.get("requests_timeout", timeout),
    }


@functools.cache
def _google_trace() -> Any:
    from aiohttp import TraceConfig

    trace = TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    trace.on_request_end.append(_refuse_page)
    return trace


def refusal(answer: Any) -> RedirectRefused:
    """Return the error for an answer of aiohttp that is a redirect."""
    from yarl import URL

    target = answer.url.join(URL(answer.headers.get("Location", "")))
    return RedirectRefused(f"it sends requests on to {target.host}")


def refuse_page(answer: Any) -> None:
    """Refuse an answer that is a web page instead of an object.

    Error pages pass: a proxy in front of a store sends them during an outage of the store.

    Args:
        answer: the answer of aiohttp, which is closed if it is refused.

    Raises:
        ForeignAnswer: it is a web page.
    """
    if answer.status >= 400 or answer.content_type != "text/html":
        return
    if not any(name.lower().startswith(_STORE_HEADERS) for name in answer.headers):
        answer.close()
        raise ForeignAnswer("it sends pages for browsers")


async def _refuse_redirect(session: Any, context: Any, redirect: Any) -> None:
    from yarl import URL

    answer = redirect.response
    target = answer.url.join(URL(answer.headers.get("Location", "")))
    if target.origin() != answer.url.origin():
        answer.close()
        raise refusal(answer)


async def _refuse_page(session: Any, context: Any, end: Any) -> None:
    refuse_page(end.response)
