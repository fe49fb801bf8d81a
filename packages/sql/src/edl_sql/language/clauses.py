"""Reads the clauses of a statement of ``edl sql``, and marks what is wrong in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from edl.plugins.errors import Problem
from edl.plugins.options import BY_NAME, Option
from edl_sql.language.tokens import SqlToken, is_word, mistake

CLAUSES = ("WITH", "COLUMN", "LABEL", "USING", "INTO")
_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}


class ClauseReader:
    """Reads the words behind TRAIN, PREDICT or EVALUATE, one after the other.

    Args:
        text: all statements.
        words: those to read.
        example: a statement of this kind, for errors.
    """

    def __init__(self, text: str, words: Sequence[SqlToken], example: str) -> None:
        self.text = text
        self.words = words
        self.example = example
        self.index = 0

    def more(self) -> bool:
        return self.index < len(self.words)

    def mistake(self, what: str, offset: int, remedy: str) -> Problem:
        """An error at the word so many places from here."""
        index = self.index + offset
        if 0 <= index < len(self.words):
            place = self.words[index].start
        else:
            place = self.words[-1].end if self.words else len(self.text)
        return mistake(what, self.text, place, remedy)

    def expect_end(self) -> None:
        if self.more():
            raise self.mistake(
                f"{self.words[self.index].text} is not expected here", 0, "End with a semicolon."
            )

    def clause(self, seen: set[str]) -> str:
        """The word that begins the next clause; a clause appears once, but for COLUMN … FOR."""
        token = self.words[self.index]
        if not is_word(token, *CLAUSES):
            raise self.mistake(
                f"{token.text} is not expected here; clauses are {', '.join(CLAUSES)}",
                0,
                self.example,
            )
        name = token.text.upper()
        if name in seen:
            raise self.mistake(f"{name} appears twice", 0, self.example)
        seen.add(name)
        self.index += 1
        return name

    def name(self, what: str) -> str:
        token = self.words[self.index] if self.more() else None
        if token is None or not token.is_name or self._begins_clause():
            raise self.mistake(f"expected {what}", 0, self.example)
        self.index += 1
        return self.words[self.index - 1].name

    def _begins_clause(self) -> bool:
        """Whether the next word begins a clause, and is no column or table such as ``label``."""
        if not is_word(self.words[self.index], *CLAUSES):
            return False
        after = self.words[self.index + 1 : self.index + 2]
        return bool(after) and after[0].text not in (",", ".") and not is_word(after[0], *CLAUSES)

    def dotted(self, what: str) -> list[str]:
        found = [self.name(what)]
        while self.more() and self.words[self.index].text == ".":
            self.index += 1
            found.append(self.name(what))
        return found

    def takes(self, *signs: str) -> bool:
        """Whether one of these words comes next, which is then read."""
        if self.more() and is_word(self.words[self.index], *signs):
            self.index += 1
            return True
        return False

    def model_name(self, clause: str) -> str:
        if not self.more() or is_word(self.words[self.index], *CLAUSES):
            raise self.mistake(f"the name of the model is missing after {clause}", 0, clause + " m")
        start = self.index
        self.index += 1
        while self.more() and self.words[self.index].start == self.words[self.index - 1].end:
            self.index += 1
        first, last = self.words[start], self.words[self.index - 1]
        name = first.name if first is last else self.text[first.start : last.end]
        if not _MODEL_NAME.fullmatch(name):
            self.index = start
            raise self.mistake(
                f"{name!r} is not a name for a model", 0, "Use letters, digits, _ . and -"
            )
        return name

    def attributes(
        self, known: Mapping[str, str], prefixes: Sequence[str], given: Sequence[str] = ()
    ) -> tuple[dict[str, object], dict[str, object]]:
        """The parameters of WITH, and those that ``known`` gives a name.

        Args:
            known: settings, and what they are called in the second result.
            prefixes: a parameter may have one of them; if there are none, there are no parameters.
            given: parameters that the statement itself gives to the model.
        """
        params: dict[str, object] = {}
        settings: dict[str, object] = {}
        while True:
            start = self.index
            name = self.dotted("name=value")
            if not self.more() or self.words[self.index].text != "=":
                raise self.mistake(f"expected = after {'.'.join(name)}", 0, "WITH name=value, …")
            self.index += 1
            whole = ".".join(name)
            if whole in known:
                place, key = settings, known[whole]
            elif prefixes and (len(name) == 1 or (len(name) == 2 and name[0] in prefixes)):
                place, key = params, name[-1]
            else:
                self.index = start
                others = f"Settings are {', '.join(known)}."
                if prefixes:
                    others = f"Parameters of the model need no prefix; {others.lower()}"
                raise self.mistake(f"there is no setting {whole}", 0, others)
            if place is params and key in given:
                self.index = start
                raise self.mistake(f"{key} comes from the SELECT", 0, "Leave it out.")
            if key in place:
                self.index = start
                raise self.mistake(f"{whole} appears twice", 0, "WITH name=value, …")
            place[key] = self.value(name[-1])
            if place is settings:
                self._check(whole, BY_NAME[key], settings[key], start)
            if not self.more() or self.words[self.index].text != ",":
                return params, settings
            self.index += 1

    def _check(self, name: str, option: Option, value: object, start: int) -> None:
        """Check that a setting's value is one of its option."""
        try:
            option.kind.read(value)
        except ValueError as error:
            remedy = f"{option.help} For example: {option.shown_example}"
            raise self.mistake(f"{name}: {error}", start - self.index, remedy) from None

    def _without_comments(self, start: int, end: int) -> str:
        """The text of some words, with a space for each comment between them."""
        parts = [self.words[start].text]
        for before, word in pairwise(self.words[start:end]):
            between = self.text[before.end : word.start]
            parts += [" " if between.strip() else between, word.text]
        return "".join(parts)

    def value(self, name: str) -> object:
        """A number, text, list or dictionary of Python."""
        start = self.index
        depth = self.words[start].depth if self.more() else 0
        while self.more():
            token = self.words[self.index]
            if token.depth < depth or (
                token.depth == depth and (token.text == "," or is_word(token, *CLAUSES))
            ):
                break
            self.index += 1
        if start == self.index:
            raise self.mistake(f"the value of {name} is missing", 0, "WITH name=value, …")
        shown = self._without_comments(start, self.index)
        if shown.lower() in _CONSTANTS:
            return _CONSTANTS[shown.lower()]
        try:
            value: object = ast.literal_eval(shown)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            self.index = start
            raise self.mistake(
                f"the value of {name} is not a number, text or list",
                0,
                f"A text needs quotes: {name}='relu'",
            ) from None
        if not _is_finite(value):
            self.index = start
            raise self.mistake(
                f"the value of {name} is too large for a float", 0, "Write a number below 1.8e308."
            )
        return value


def _is_finite(value: object) -> bool:
    """Whether no number in a value is too large for a float."""
    if isinstance(value, dict):
        return all(map(_is_finite, (*value, *value.values())))
    if isinstance(value, list | tuple | set):
        return all(map(_is_finite, value))
    return not isinstance(value, float | complex) or abs(value) < float("inf")
