"""Answers that are no store's: redirects to other servers, and pages for browsers.

aiohttp, which the clients of stores use, would follow redirects with the names and the content of
objects, and with the token of a session of S3, which another server could use. A page that a proxy
or a network with a login sends instead would pass for the content of an object.
"""

from __future__ import annotations

import functools
from typing import Any

REDIRECTS = frozenset((301, 302, 303, 307, 308))

_SILENCE_S = 30.0
"""How long a server may say nothing to a request of gcsfs, which then tries it five times more."""

_OF_STORES = ("etag", "x-amz", "x-goog", "x-guploader")
"""Beginnings of headers, one of which comes with every object of S3 and Google Cloud Storage."""


class ForeignAnswer(OSError):
    """What answers there is no store, or sends requests on to another server."""


class RedirectRefused(ForeignAnswer):
    """A store, or what answers in its place, sends requests on to another server."""


def google_options(configured: dict[str, Any]) -> dict[str, Any]:
    """Arguments for gcsfs; none if it is not installed.

    Equal ones for equal ones: fsspec keeps a client, with its connections, for each.

    Args:
        configured: those that the user has set for gcsfs.
    """
    try:
        from aiohttp import ClientTimeout
    except ModuleNotFoundError:
        return {}
    # It sets none of its own, and would wait for a silent server for ever.
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
    """The error for an answer of aiohttp that is a redirect."""
    from yarl import URL

    place = answer.url.join(URL(answer.headers.get("Location", "")))
    return RedirectRefused(f"it sends requests on to {place.host}")


def refuse_page(answer: Any) -> None:
    """Refuse what is no store's answer.

    The pages of errors pass: a proxy in front of a store sends them while the store is away.

    Args:
        answer: of aiohttp; it is closed where it is refused.

    Raises:
        ForeignAnswer: it is a page for browsers, and no object.
    """
    if answer.status >= 400 or answer.content_type != "text/html":
        return
    if not any(name.lower().startswith(_OF_STORES) for name in answer.headers):
        answer.close()
        raise ForeignAnswer("it sends pages for browsers")


async def _refuse_redirect(session: Any, context: Any, redirect: Any) -> None:
    from yarl import URL

    answer = redirect.response
    place = answer.url.join(URL(answer.headers.get("Location", "")))
    if place.origin() != answer.url.origin():
        answer.close()
        raise refusal(answer)


async def _refuse_page(session: Any, context: Any, end: Any) -> None:
    refuse_page(end.response)
