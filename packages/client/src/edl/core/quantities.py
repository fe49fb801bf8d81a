"""Parses and formats durations, counts and sizes for people."""

from __future__ import annotations

import math
import re

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Parse a duration into seconds: ``90``, ``90s``, ``1.5m``, ``2h30m`` or ``1d``.

    Raises:
        ValueError: the text is not a duration; the message says how to write one.
    """
    compact = text.strip().lower().replace(" ", "")
    try:
        seconds = float(compact)
    except ValueError:
        parts = _PART.findall(compact)
        if not parts or "".join(number + unit for number, unit in parts) != compact:
            raise ValueError(f"{text!r} is not a duration; write 90s, 15m or 2h30m") from None
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{text!r} is not a duration; it must be finite and not negative")
    return seconds


def duration(seconds: float) -> str:
    """Return ``0.4 s``, ``12 s``, ``3 m 05 s``, ``2 h 07 m``, ``3 d 04 h``; ``?`` if unknown."""
    if not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def count(number: float) -> str:
    """Return a whole number with separators: ``60,000``."""
    return f"{round(number):,}"


def rate(per_s: float) -> str:
    """Something per second: ``2,310``, ``3.4``, ``0.05``; ``?`` if unknown."""
    if not math.isfinite(per_s):
        return "?"
    if per_s >= 100:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2g}"


def number(value: float) -> str:
    """Return a loss or a metric, to four significant digits; ``nan`` and ``inf`` as such."""
    if not math.isfinite(value):
        return str(value)
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def size(octets: float) -> str:
    """Return ``512 B``, ``1.4 MB``, ``2.0 GB``; powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if octets < 999.5:
            return f"{octets:.0f} {unit}" if unit == "B" else f"{octets:.1f} {unit}"
        octets /= 1000
    return f"{octets:.1f} TB"


def plural(number: int, word: str) -> str:
    """Return ``1 worker``, ``2 workers``."""
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """Return a text with its line breaks and other unprintable characters as escapes.

    So its length is its width where it is printed in columns.
    """
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)
