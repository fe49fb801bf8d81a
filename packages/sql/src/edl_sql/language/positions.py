"""Positions in SQL statements, for errors that are found when their words have been read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from edl_sql.language.clauses import CLAUSES
from edl_sql.language.tokens import SqlToken, is_word, mark_position


@dataclass(frozen=True, slots=True)
class SqlPositions:
    """Where the parts of one statement are.

    Attributes:
        text: all statements, in which positions count.
        words: of this one.
        first: index of the first word of its SELECT.
    """

    text: str
    words: tuple[SqlToken, ...]
    first: int = 0

    @property
    def start(self) -> int:
        """The index in the text at which the SELECT begins."""
        return self.words[self.first].start if self.words else 0

    def find(self, clause: str, name: str = "") -> int:
        """Return the index of a name in a clause, or of the clause's first word.

        Args:
            clause: the word that begins it, such as ``INTO``; ``SELECT`` for the whole statement.
            name: a column or a parameter; empty for what follows the clause's word.
        """
        if clause == "SELECT":
            parts = [self.words]
        else:
            # The SELECT may have the same words, but these come last; COLUMN may be there twice.
            begun = [index for index in range(1, len(self.words)) if self._begins(index, clause)]
            parts = [self.words[index:] for index in reversed(begun)] or [self.words]
        for part in parts:
            for word, after in pairwise((*part, None)):
                is_value = clause == "WITH" and (after is None or after.text != "=")
                if word is not None and word.is_name and word.name == name and not is_value:
                    return word.start
        first = next(filter(None, parts), None)
        return first[0].start if first else len(self.text)

    def _begins(self, index: int, clause: str) -> bool:
        """Return whether the word before this one begins a clause; ``label`` may be a name, too.

        Of two such words, the second is the name if another clause or nothing follows.
        """
        if not _is(self.words[index - 1], clause):
            return False
        is_second = index > 1 and _is(self.words[index - 2], clause)
        return not (is_second and is_word(self.words[index], *CLAUSES))

    def mark(self, clause: str, name: str = "") -> str:
        """Return line and column of a position, and a mark under it."""
        return mark_position(self.text, self.find(clause, name))


NOWHERE = SqlPositions("", ())


def _is(word: SqlToken, clause: str) -> bool:
    return not word.depth and is_word(word, clause)
