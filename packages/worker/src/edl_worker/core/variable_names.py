"""Names of variables: unique in a model, and matched even if Keras counts differently."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_COUNTER = re.compile(r"_\d+(?=/|$)")


def unique(paths: Sequence[str]) -> list[str]:
    """Return the paths as names without repetition: the second ``a/b`` becomes ``a/b#2``."""
    seen: dict[str, int] = {}
    names = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        names.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return names


def match(wanted: Sequence[str], stored: Sequence[str]) -> Mapping[str, str] | None:
    """Find for each wanted name the stored one.

    Keras numbers the layers of a process (``dense``, ``dense_1``, ...), so the same model has
    other names where another one was built before it. If the names as they are do not match,
    names without their counters are compared in order.

    Args:
        wanted: names of the model's variables, in order.
        stored: names in the file, in the order in which they were saved.

    Returns:
        Stored name by wanted name, or None if the two do not describe the same variables.
    """
    if set(wanted) <= set(stored):
        return {name: name for name in wanted}
    if len(wanted) != len(stored):
        return None
    if [_COUNTER.sub("", name) for name in wanted] != [_COUNTER.sub("", name) for name in stored]:
        return None
    return dict(zip(wanted, stored, strict=True))
