"""Tokens of SQL with their positions: enough to tell words from texts and comments."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from edl.plugins.errors import Problem, usage
from edl_sql.language.table_names import join_name


class Dialect(StrEnum):
    """The syntax of texts and comments."""

    STANDARD = "standard"
    POSTGRESQL = "postgresql"
    """Also ``$$…$$``, ``E'…\\'…'`` and comments within comments; DuckDB's words are the same."""
    MYSQL = "mysql"
    """Also backslashes within texts, and comments that begin with ``#``; ``5--3`` has none."""


_DIALECTS = {
    "postgresql": Dialect.POSTGRESQL,
    "duckdb": Dialect.POSTGRESQL,
    "mysql": Dialect.MYSQL,
    "mariadb": Dialect.MYSQL,
}


def dialect_of(backend: str) -> Dialect:
    """Return the dialect of a database, by SQLAlchemy's name for it."""
    return _DIALECTS.get(backend, Dialect.STANDARD)


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A word, a text, a number or a sign.

    Attributes:
        start, end: its place, in characters.
        depth: how many brackets are open; an opening bracket itself is outside of them.
    """

    text: str
    start: int
    end: int
    depth: int

    @property
    def is_name(self) -> bool:
        return self.text[0] in "\"`'" or self.text[0].isalpha() or self.text[0] == "_"

    @property
    def name(self) -> str:
        """The name without its quotes."""
        quote = self.text[0]
        if quote in "\"`'":
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text


_WORD = re.compile(r"[^\W\d]\w*(?:\$\w*)*")
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_DOLLAR = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_SHOWN_BEFORE, _SHOWN_AFTER = 70, 30
_PAIRS = {")": "(", "]": "[", "}": "{"}


class _NeverOpened(Problem):
    """A bracket is closed that was not opened, which more text cannot repair."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__("USAGE", what, where=where)


def is_word(token: SqlToken, *words: str) -> bool:
    """Return whether a token is one of these words, in upper or lower case."""
    return token.text.upper() in words


def tokens(text: str, dialect: Dialect) -> Iterator[SqlToken]:
    """Yield all words and signs, without spaces and comments.

    Raises:
        Problem: a text, a comment or a bracket does not end.
    """
    position = 0
    opened: list[tuple[str, int]] = []
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        comment = _end_of_comment(text, position, dialect)
        if comment is not None:
            position = comment
            continue
        end = _end_of_token(text, position, dialect)
        word = text[position:end]
        if word in _PAIRS:
            if not opened or opened[-1][0] != _PAIRS[word]:
                raise _NeverOpened(f"no {_PAIRS[word]} is open here", mark_position(text, position))
            opened.pop()
        yield SqlToken(word, position, end, len(opened))
        if word in _PAIRS.values():
            opened.append((word, position))
        position = end
    if opened:
        raise mistake("this bracket is never closed", text, opened[-1][1], "Close it.")


def without_semicolons(query: str, dialect: Dialect) -> str:
    """Return a query without the semicolons at its end and the comments after them."""
    query = query.strip()
    try:
        words = list(tokens(query, dialect))
    except Problem:  # the database says what is wrong with it
        return query.rstrip(";").rstrip()
    end = len(query)
    while words and words[-1].text == ";":
        end = words.pop().start
    return query[:end].rstrip() if words else ""


def tables_in(query: str, dialect: Dialect) -> list[str]:
    """Return what follows FROM and JOIN outside of brackets, as names of tables."""
    found, words = [], [*tokens(query, dialect)]
    for index, word in enumerate(words[:-1]):
        if word.depth or not is_word(word, "FROM", "JOIN") or not words[index + 1].is_name:
            continue
        parts = [words[index + 1]]
        rest = words[index + 2 :]
        while len(rest) > 1 and rest[0].text == "." and rest[1].is_name:
            parts.append(rest[1])
            rest = rest[2:]
        found.append(join_name([_stored_name(part, dialect) for part in parts]))
    return found


def _stored_name(word: SqlToken, dialect: Dialect) -> str:
    """Return a name as a database has it: PostgreSQL has those without quotes in lower case."""
    is_quoted = word.name != word.text
    return word.name.lower() if dialect is Dialect.POSTGRESQL and not is_quoted else word.name


def ends_with_semicolon(text: str, dialect: Dialect) -> bool:
    """Return whether the last token of a text is a semicolon that ends a statement.

    It is not within a text or a comment that does not end yet, or within open brackets.
    """
    last = None
    try:
        for token in tokens(text, dialect):
            last = token
    except Problem as problem:
        return isinstance(problem, _NeverOpened) and text.rstrip().endswith(";")
    return last is not None and last.text == ";"


def mistake(what: str, text: str, position: int, remedy: str = "") -> Problem:
    """Return an error that shows its line, with a mark under its place."""
    return usage(what, where=mark_position(text, position), remedy=remedy)


def mark_position(text: str, position: int) -> str:
    """Return line and column of a position, and below them the line with a mark under it."""
    before = text[:position]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1)
    shown = text.split("\n")[line - 1].rstrip("\r")
    first = max(0, column - _SHOWN_BEFORE)
    mark = "".join(_blank(char) for char in shown[first:column]) + "^"
    shown = shown[first : column + _SHOWN_AFTER]
    if first:
        shown, mark = f"…{shown}", f" {mark}"
    return f"line {line}, column {column + 1}\n  {shown}\n  {mark}"


def _blank(char: str) -> str:
    """Return spaces as wide as a character is in a terminal."""
    if char == "\t":
        return char
    if unicodedata.combining(char):
        return ""
    return "  " if unicodedata.east_asian_width(char) in "WF" else " "


def _end_of_comment(text: str, start: int, dialect: Dialect) -> int | None:
    is_mysql = dialect is Dialect.MYSQL
    two_signs = is_mysql and text[start + 2 : start + 3].strip()  # minus a negative number
    if (text.startswith("--", start) and not two_signs) or (is_mysql and text[start] == "#"):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    if not text.startswith("/*", start):
        return None
    depth, position = 1, start + 2
    while depth:
        match = re.compile(r"/\*|\*/").search(text, position)
        if match is None:
            raise mistake("this comment does not end", text, start)
        position = match.end()
        if match[0] == "*/":
            depth -= 1
        elif dialect is Dialect.POSTGRESQL:
            depth += 1
    return position


def _end_of_token(text: str, start: int, dialect: Dialect) -> int:
    char = text[start]
    if char in "'\"`":
        escapes = dialect is Dialect.MYSQL and char != "`"
        return _end_of_text(text, start, escapes)
    if dialect is Dialect.POSTGRESQL:
        if char in "eE" and text.startswith("'", start + 1):
            return _end_of_text(text, start + 1, True)
        dollar = _DOLLAR.match(text, start)
        if dollar is not None:
            end = text.find(dollar[0], dollar.end())
            if end < 0:
                raise mistake("this text does not end", text, start, "Close its quote.")
            return end + len(dollar[0])
    match = _WORD.match(text, start) or _NUMBER.match(text, start)
    return match.end() if match else start + 1


def _end_of_text(text: str, start: int, escapes: bool) -> int:
    quote, position = text[start], start + 1
    while position < len(text):
        if escapes and text[position] == "\\":
            position += 2
        elif text[position] != quote:
            position += 1
        elif text.startswith(quote, position + 1):
            position += 2
        else:
            return position + 1
    raise mistake("this text does not end", text, start, "Close its quote.")
