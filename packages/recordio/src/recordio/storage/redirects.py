"""Clients of stores that follow no redirects to another server.

aiohttp, which they use, would follow them with the names and the content of objects, and with the
token of a session of S3, which another server could use.
"""

from __future__ import annotations

from typing import Any


class RedirectRefused(OSError):
    """A store, or what answers in its place, sends requests on to another server."""


def google_options() -> dict[str, Any]:
    """Arguments for gcsfs; none if it is not installed."""
    try:
        from aiohttp import TraceConfig
    except ModuleNotFoundError:
        return {}
    trace = TraceConfig()
    trace.on_request_redirect.append(_refuse)
    return {"session_kwargs": {"trace_configs": [trace]}}


def refusal(answer: Any) -> RedirectRefused:
    """The error for an answer of aiohttp that is a redirect."""
    from yarl import URL

    place = answer.url.join(URL(answer.headers.get("Location", "")))
    return RedirectRefused(f"it sends requests on to {place.host}")


async def _refuse(session: Any, context: Any, redirect: Any) -> None:
    from yarl import URL

    answer = redirect.response
    place = answer.url.join(URL(answer.headers.get("Location", "")))
    if place.origin() != answer.url.origin():
        answer.close()
        raise refusal(answer)
