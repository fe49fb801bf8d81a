"""Times in UTC, as RFC 3339 writes them, and back."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at_s: float, timespec: str = "milliseconds") -> str:
    """A time for people and machines, such as ``2023-11-14T22:13:20.250Z``.

    Args:
        at_s: seconds since the epoch.
        timespec: the precision, as ``datetime.isoformat`` takes it.
    """
    text = datetime.fromtimestamp(at_s, UTC).isoformat(timespec=timespec)
    return text.replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float | None:
    """Seconds since the epoch of a time; UTC if it names no offset. None if the text is no time."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        at_s = found.timestamp()
        rfc3339(at_s)  # the first and the last year have times that no offset of 0 can name
    except (ValueError, OverflowError):
        return None
    return at_s
