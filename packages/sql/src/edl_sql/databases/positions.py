"""The place in a query where a database found a mistake, if its driver names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edl.plugins.errors import Problem
from edl_sql.language.tokens import Dialect, mark_position, tokens

_NEAR = re.compile(r"syntax to use near '(.*)' at line \d+", re.S)
"""Of MariaDB and MySQL: what follows the mistake, 80 characters of it at most."""

_NAMED = re.compile(
    r"Unknown column '(.+?)' in"  # MariaDB, MySQL
    r"|Table '(.+?)' doesn't exist"
    r"|no such (?:column|table|function): (\S+)"  # SQLite
    r"|near \"(.+)\": syntax error"
    r"|unrecognized token: \"(.+)\""
    r"|Referenced column \"(.+?)\" not found"  # DuckDB
    r"|Table with name (\S+) does not exist"
    r"|syntax error at or near \"(.+)\""
)


@dataclass(frozen=True, slots=True)
class SentQuery:
    """A query, the words that are sent around it, and the text that the user wrote it in.

    Attributes:
        text: what the person has written, the query being a part of it.
        start: where in this text the query begins.
    """

    query: str
    before: str = ""
    after: str = ""
    text: str = ""
    start: int = 0

    @property
    def sent(self) -> str:
        return f"{self.before}{self.query}{self.after}"

    def mark(self, error: Any, dialect: Dialect) -> str:
        """Return line, column and a mark under the place of a driver's error; empty if unknown."""
        position = _position(error, self, dialect)
        if position is None or not 0 <= position <= len(self.query):
            return ""
        return mark_position(self.text or self.query, self.start + position)


def _position(error: Any, sent: SentQuery, dialect: Dialect) -> int | None:
    told = getattr(getattr(error, "diag", None), "statement_position", None)
    if told is not None:  # PostgreSQL counts from one
        return int(told) - 1 - len(sent.before)
    message = " ".join(str(each) for each in getattr(error, "args", ()))
    near = _NEAR.search(message)
    if near is not None:
        places = [match.start() for match in re.finditer(re.escape(near[1]), sent.sent)]
        is_one = bool(near[1]) and len(places) == 1
        return places[0] - len(sent.before) if is_one else None
    named = _NAMED.search(message)
    return _only_place(next(filter(None, named.groups())), sent.query, dialect) if named else None


def _only_place(name: str, query: str, dialect: Dialect) -> int | None:
    """Return where a query has the word that a database named; None if it occurs several times."""
    try:
        words = list(tokens(query, dialect))
    except Problem:
        return None
    wanted = {name, name.rpartition(".")[2]}
    places = [word.start for word in words if word.text in wanted or word.name in wanted]
    return places[0] if len(places) == 1 else None
