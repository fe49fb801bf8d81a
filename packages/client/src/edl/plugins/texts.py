"""Words for numbers, sizes and names in what people read."""

from __future__ import annotations

from edl.core.quantities import count, duration, one_line, plural, size
from edl.core.suggestions import did_you_mean

__all__ = ["count", "did_you_mean", "duration", "one_line", "plural", "size"]
