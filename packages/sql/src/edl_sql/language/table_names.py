"""Names of tables, with or without a schema: ``testdata``, ``sales.testdata``, ``"a.b"``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PART = r'(?:"(?:[^"]|"")+"|[^".]+)'
_TABLE = re.compile(rf"(?:({_PART})\.)?({_PART})")


def join_name(parts: Sequence[str]) -> str:
    """Join the parts of a name with dots; parts that contain a dot are quoted."""
    return ".".join('"' + part.replace('"', '""') + '"' if "." in part else part for part in parts)


def split(table: str) -> tuple[str | None, str]:
    """Split the name of a table into its schema, or None, and its name."""
    match = _TABLE.fullmatch(table)
    if match is None:
        schema, _, name = table.rpartition(".")
        return schema or None, name
    return match[1] and _plain(match[1]), _plain(match[2])


def find_name(name: str, names: Iterable[str], *, any_case: bool) -> str | None:
    """Return the one of these names that a database resolves ``name`` to; None if there is none.

    Args:
        any_case: the database makes no difference between upper and lower case.
    """
    known = list(names)
    if name in known or not any_case:
        return name if name in known else None
    return next((each for each in known if each.lower() == name.lower()), None)


def _plain(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
