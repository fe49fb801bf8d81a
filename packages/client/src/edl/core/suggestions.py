"""Suggests the name that a user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``word``, or None if none is like it."""
    names = list(known)
    found = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if found:
        return found[0]
    # A name that was cut short is far away by edit distance, yet plainly meant.
    longer = [name for name in names if len(word) >= 3 and name.startswith(word)]
    return min(longer, key=len) if longer else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence for an error's remedy; empty if nothing is near."""
    name = nearest(word, known)
    return f"Did you mean {name}?" if name else ""
