"""Reads the clauses of a statement of ``edl sql``, and marks what is wrong in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from edl.plugins.errors import Problem
from edl.plugins.options import BY_NAME, Option
from edl.plugins.texts import did_you_mean
from edl_sql.language.table_names import join_name
from edl_sql.language.tokens import SqlToken, is_word, mistake

CLAUSES = ("WITH", "COLUMN", "LABEL", "USING", "INTO")
_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NEAREST = {
    "train.max_steps": "Write train.epoch.",
    "train.save_checkpoints_steps": "Write train.checkpoint_steps, with train.checkpoint_dir.",
    "train.verbose": "Leave it out: edl logs shows what workers write.",
    "train.log_every_n_iter": "Leave it out: edl logs shows what workers write.",
    "validation.steps": "Leave it out, or write LIMIT in validation.select.",
    "validation.start_delay_secs": "Leave it out: edl measures after each epoch.",
    "validation.throttle_secs": "Leave it out: edl measures after each epoch.",
}
"""Settings of SQLFlow that edl lacks, and what to write in their place."""
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

    def has_more(self) -> bool:
        return self.index < len(self.words)

    def mistake(self, what: str, offset: int, remedy: str) -> Problem:
        """Return an error that marks the word ``offset`` words from here."""
        index = self.index + offset
        if 0 <= index < len(self.words):
            place = self.words[index].start
        else:
            place = self.words[-1].end if self.words else len(self.text)
        return mistake(what, self.text, place, remedy)

    def expect_end(self) -> None:
        if self.has_more():
            raise self.mistake(
                f"{self.words[self.index].text} is not expected here", 0, "End with a semicolon."
            )

    def read_clause(self, seen: set[str]) -> str:
        """Read the first word of the next clause; only COLUMN … FOR may appear twice."""
        token = self.words[self.index]
        if not is_word(token, *CLAUSES):
            raise self.mistake(
                f"{token.text} is not expected here; clauses are {', '.join(CLAUSES)}",
                0,
                did_you_mean(token.text.upper(), CLAUSES) or self.example,
            )
        name = token.text.upper()
        if name in seen:
            raise self.mistake(f"{name} appears twice", 0, self.example)
        seen.add(name)
        self.index += 1
        return name

    def read_name(self, what: str) -> str:
        token = self.words[self.index] if self.has_more() else None
        if token is None or not token.is_name or self._begins_clause():
            if self.index and self.words[self.index - 1].text == ",":
                raise self.mistake(f"expected {what} after the comma", -1, "Or leave it out.")
            raise self.mistake(f"expected {what}", 0, self.example)
        self.index += 1
        return self.words[self.index - 1].name

    def _begins_clause(self) -> bool:
        """Return whether the next word begins a clause, and is not a name such as ``label``."""
        word = self.words[self.index]
        if word.depth or not is_word(word, *CLAUSES):
            return False
        after = self.words[self.index + 1 : self.index + 2]
        return bool(after) and after[0].text not in (",", ".") and not is_word(after[0], *CLAUSES)

    def read_dotted_name(self, what: str) -> list[str]:
        found = [self.read_name(what)]
        while self.has_more() and self.words[self.index].text == ".":
            self.index += 1
            found.append(self.read_name(what))
        return found

    def accept(self, *signs: str) -> bool:
        """Read the next word if it is one of these; return whether it is."""
        found = self.has_more() and is_word(self.words[self.index], *signs)
        self.index += found
        return found

    def expect(self, sign: str) -> None:
        """Read the next word, which must be this one."""
        if not self.accept(sign):
            raise self.mistake(f"expected {sign}", 0, self.example)

    def read_model_name(self, clause: str) -> str:
        model, _ = self.read_model_or_table(clause, may_be_table=False)
        return model

    def read_model_or_table(self, clause: str, *, may_be_table: bool = True) -> tuple[str, str]:
        """Read a name; return it as that of a model, or nothing, and as that of a table."""
        if not self.has_more() or is_word(self.words[self.index], *CLAUSES):
            raise self.mistake(f"the name of the model is missing after {clause}", 0, clause + " m")
        start = self.index
        self.index += 1
        while self.has_more() and self.words[self.index].start == self.words[self.index - 1].end:
            self.index += 1
        words = self.words[start : self.index]
        name = words[0].name if len(words) == 1 else self.text[words[0].start : words[-1].end]
        parts = [word for word in words if word.text != "."]
        table = join_name([part.name for part in parts])
        if _MODEL_NAME.fullmatch(name):
            return name, table
        if may_be_table and all(part.is_name for part in parts):
            return "", table
        self.index = start
        raise self.mistake(
            f"{name!r} is not a name for a model", 0, "Use letters, digits, _ . and -"
        )

    def read_attributes(
        self,
        known: Mapping[str, str],
        prefixes: Sequence[str],
        given: Sequence[str] = (),
        whole_names: Sequence[str] = (),
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Read WITH; return the model's parameters, and the settings by their names in ``known``.

        Args:
            known: settings, and what they are called in the second result.
            prefixes: a parameter may have one of them; if there are none, there are no parameters.
            given: parameters that the statement itself gives to the model.
            whole_names: parameters with a prefix that others do not have.
        """
        params: dict[str, object] = {}
        settings: dict[str, object] = {}
        while True:
            start = self.index
            name = self.read_dotted_name("name=value")
            if not self.has_more() or self.words[self.index].text != "=":
                raise self.mistake(f"expected = after {'.'.join(name)}", 0, "WITH name=value, …")
            self.index += 1
            whole = ".".join(name)
            if whole in known:
                place, key = settings, known[whole]
            elif whole in whole_names or (
                prefixes and (len(name) == 1 or (len(name) == 2 and name[0] in prefixes))
            ):
                place, key = params, name[-1]
            else:
                self.index = start
                raise self.mistake(
                    f"there is no setting {whole}", 0, _remedy(whole, known, prefixes)
                )
            if place is params and key in given:
                self.index = start
                raise self.mistake(f"{key} comes from the SELECT", 0, "Leave it out.")
            if key in place:
                self.index = start
                raise self.mistake(f"{whole} appears twice", 0, "WITH name=value, …")
            place[key] = self.read_value(name[-1])
            if place is settings and key in BY_NAME:
                settings[key] = self._read_setting(whole, BY_NAME[key], settings[key], start)
            if not self.has_more() or self.words[self.index].text != ",":
                return params, settings
            self.index += 1

    def _read_setting(self, name: str, option: Option, value: object, start: int) -> object:
        """Return the value of a setting, which is one of its option; '3' is the number 3."""
        try:
            found = option.kind.read(value)
        except ValueError as error:
            shown = option.shown_example.removeprefix(f"{option.flag} ")
            remedy = f"{option.help} For example: {name}={shown}"
            raise self.mistake(f"{name}: {error}", start - self.index, remedy) from None
        return found if isinstance(value, str) and isinstance(found, int) else value

    def _without_comments(self, start: int, end: int) -> str:
        """Return the text of some words, with a space in place of each comment."""
        parts = [self.words[start].text]
        for before, word in pairwise(self.words[start:end]):
            between = self.text[before.end : word.start]
            parts += [" " if between.strip() else between, word.text]
        return "".join(parts)

    def read_value(self, name: str) -> object:
        """Read a Python literal: a number, text, list or dictionary."""
        start = self.index
        depth = self.words[start].depth if self.has_more() else 0
        while self.has_more():
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
                "Write a number, a text in quotes, or a list in brackets."
                if not shown.isidentifier()
                else f"A text needs quotes: {name}='{shown}'",
            ) from None
        if not _is_finite(value):
            self.index = start
            raise self.mistake(
                f"the value of {name} is too large for a float", 0, "Write a number below 1.8e308."
            )
        return value


def _remedy(setting: str, known: Collection[str], prefixes: Collection[str]) -> str:
    """Return what to do about a setting that is not known."""
    if nearest := _NEAREST.get(setting) or did_you_mean(setting, known):
        return nearest
    settings = f"ettings are {', '.join(known)}."
    return f"Parameters of the model need no prefix; s{settings}" if prefixes else f"S{settings}"


def _is_finite(value: object) -> bool:
    """Return whether every number in a value fits into a float."""
    if isinstance(value, dict):
        return all(map(_is_finite, (*value, *value.values())))
    if isinstance(value, list | tuple | set):
        return all(map(_is_finite, value))
    return not isinstance(value, float | complex) or abs(value) < float("inf")
