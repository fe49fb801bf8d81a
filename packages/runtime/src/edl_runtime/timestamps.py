"""Formats and parses times in UTC as RFC 3339 defines them."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at_s: float, timespec: str = "milliseconds") -> str:
    """Format a time, for example as ``2023-11-14T22:13:20.250Z``.

    Args:
        at_s: seconds since the epoch.
        timespec: the precision, as ``datetime.isoformat`` takes it.
    """
    text = datetime.fromtimestamp(at_s, UTC).isoformat(timespec=timespec)
    return text.replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float | None:
    """Parse a time into seconds since the epoch; UTC without an offset, None if it is no time."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        at_s = found.timestamp()
        rfc3339(at_s)  # the first and the last year have times that no offset of 0 can name
    except (ValueError, OverflowError):
        return None
    return at_s
