"""Statements of ``edl sql``: a SELECT of the database, and what to do with its rows.

    SELECT … TRAIN regressor.DNN WITH hidden_units=[10, 100] LABEL price INTO my_model;
    SELECT … TO PREDICT testdata.predicted_price USING my_model;
    SHOW TRAIN my_model;

TRAIN and PREDICT are no words of SQL, and may be names in the SELECT. A statement is therefore cut
at the last of them that stands outside of brackets, texts and comments and is followed by what must
follow it. The SELECT is never changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edl.core.problem import Problem
from edl.core.sql_tokens import Dialect, SqlToken, is_word, mistake, tokens

_CLAUSES = ("WITH", "COLUMN", "LABEL", "USING", "INTO")
_FOLLOWERS = {"TRAIN": _CLAUSES, "PREDICT": ("WITH", "USING")}
_TRAIN_EXAMPLE = "SELECT … TRAIN regressor.DNN WITH learning_rate=0.01 LABEL price INTO my_model;"
_PREDICT_EXAMPLE = "SELECT … PREDICT testdata.predicted_price USING my_model;"
_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SETTINGS = {
    "train.epoch": "num_epochs",
    "train.batch_size": "minibatch_size",
    "train.num_workers": "num_workers",
}
_PREFIXES = ("model", "optimizer")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}


@dataclass(frozen=True, slots=True)
class Train:
    """``SELECT … TRAIN``.

    Attributes:
        select: the SELECT as it was written.
        model_def: the model, as ``--model-def`` names it.
        params: of the model: WITH.
        settings: options of ``edl train`` by their Python names: ``WITH train.epoch=10``.
        columns: of the SELECT that are features; none for all.
        label: the column to learn; empty for the last one.
        into: name of the trained model.
        text: the whole statement.
    """

    select: str
    model_def: str
    into: str
    params: dict[str, object] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    label: str = ""
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Predict:
    """``SELECT … PREDICT``.

    Attributes:
        table: its name, or schema.table.
        column: where the predictions go.
        using: name of the trained model.
    """

    select: str
    table: str
    column: str
    using: str


@dataclass(frozen=True, slots=True)
class ShowTrain:
    """``SHOW TRAIN``: how a model was trained."""

    model: str


Statement = Train | Predict | ShowTrain


def parse_statements(text: str, dialect: Dialect = Dialect.STANDARD) -> list[Statement]:
    """The statements of a text, separated by semicolons.

    Raises:
        Problem: one of them is wrong, or there is none; it shows the place.
    """
    found: list[Statement] = []
    current: list[SqlToken] = []
    for token in tokens(text, dialect):
        if token.text == ";" and not token.depth:
            if current:
                found.append(_statement(text, current))
            current = []
        else:
            current.append(token)
    if current:
        found.append(_statement(text, current))
    if not found:
        raise mistake("there is no statement", text, len(text), _TRAIN_EXAMPLE)
    return found


def _statement(text: str, words: Sequence[SqlToken]) -> Statement:
    if is_word(words[0], "SHOW"):
        return _show(text, words)
    verb = _cut(text, words)
    before = verb - 1 if is_word(words[verb - 1], "TO") else verb
    if not before:
        raise mistake("a SELECT must come first", text, words[0].start, _TRAIN_EXAMPLE)
    if not is_word(words[0], "SELECT", "WITH", "(", "VALUES", "TABLE"):
        raise mistake("this is no SELECT", text, words[0].start, _TRAIN_EXAMPLE)
    select = text[words[0].start : words[before - 1].end]
    rest = _Reader(text, words[verb + 1 :])
    if is_word(words[verb], "TRAIN"):
        return replace(_train(select, rest), text=text[words[0].start : words[-1].end])
    return _predict(select, rest)


def _show(text: str, words: Sequence[SqlToken]) -> ShowTrain:
    if len(words) < 2 or not is_word(words[1], "TRAIN"):
        raise mistake("only SHOW TRAIN is known", text, words[0].start, "SHOW TRAIN my_model;")
    reader = _Reader(text, words[2:])
    model = reader.model_name("SHOW TRAIN")
    reader.expect_end()
    return ShowTrain(model)


def _cut(text: str, words: Sequence[SqlToken]) -> int:
    """Index of TRAIN or PREDICT."""
    at_top = [
        index
        for index, token in enumerate(words)
        if not token.depth and is_word(token, "TRAIN", "PREDICT")
    ]
    for index in reversed(at_top):
        if _is_followed(words, index):
            return index
    meant = [i for i in at_top if i and is_word(words[i - 1], "TO")] or [
        index for index in at_top if index + 1 < len(words) and words[index + 1].is_name
    ]
    if meant:
        word = words[meant[-1]].text.upper()
        example = _TRAIN_EXAMPLE if word == "TRAIN" else _PREDICT_EXAMPLE
        after = "WITH, COLUMN, LABEL or INTO" if word == "TRAIN" else "USING"
        raise mistake(
            f"{word} must be followed by a name and {after}", text, words[meant[-1]].start, example
        )
    raise mistake(
        "the statement says neither TRAIN nor PREDICT", text, words[-1].end, _TRAIN_EXAMPLE
    )


def _is_followed(words: Sequence[SqlToken], index: int) -> bool:
    end = index + 1
    if end >= len(words) or not words[end].is_name:
        return False
    while end + 2 < len(words) and words[end + 1].text == "." and words[end + 2].is_name:
        end += 2
    return end + 1 < len(words) and is_word(words[end + 1], *_FOLLOWERS[words[index].text.upper()])


def _train(select: str, rest: _Reader) -> Train:
    model_def = ".".join(rest.dotted("a model such as regressor.DNN"))
    params: dict[str, object] = {}
    settings: dict[str, object] = {}
    columns: tuple[str, ...] = ()
    label = into = ""
    seen: set[str] = set()
    while rest.more():
        clause = rest.clause(seen)
        if clause == "WITH":
            params, settings = rest.attributes()
        elif clause == "COLUMN":
            columns = rest.columns()
        elif clause == "LABEL":
            label = rest.column("the column to learn")
        elif clause == "INTO":
            into = rest.model_name("INTO")
        else:
            raise rest.mistake("USING of a trained model is for PREDICT", -1, _TRAIN_EXAMPLE)
    if not into:
        raise rest.mistake("INTO and the name of the model are missing", 0, _TRAIN_EXAMPLE)
    return Train(select, model_def, into, params, settings, columns, label)


def _predict(select: str, rest: _Reader) -> Predict:
    start = rest.index
    target = rest.dotted("a column such as testdata.predicted_price")
    if len(target) not in (2, 3):
        rest.index = start
        raise rest.mistake("PREDICT needs a table and a column", 0, _PREDICT_EXAMPLE)
    if not rest.more() or not is_word(rest.words[rest.index], "USING"):
        raise rest.mistake("expected USING and the name of a model", 0, _PREDICT_EXAMPLE)
    rest.index += 1
    using = rest.model_name("USING")
    rest.expect_end()
    return Predict(select, ".".join(target[:-1]), target[-1], using)


class _Reader:
    """Reads the clauses behind TRAIN or PREDICT."""

    def __init__(self, text: str, words: Sequence[SqlToken]) -> None:
        self.text = text
        self.words = words
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
        token = self.words[self.index]
        if not is_word(token, *_CLAUSES):
            raise self.mistake(
                f"{token.text} is not expected here; clauses are {', '.join(_CLAUSES)}",
                0,
                _TRAIN_EXAMPLE,
            )
        name = token.text.upper()
        if name in seen:
            raise self.mistake(f"{name} appears twice", 0, _TRAIN_EXAMPLE)
        seen.add(name)
        self.index += 1
        return name

    def column(self, what: str) -> str:
        token = self.words[self.index] if self.more() else None
        if token is None or not token.is_name or is_word(token, *_CLAUSES):
            raise self.mistake(f"expected {what}", 0, _TRAIN_EXAMPLE)
        self.index += 1
        return self.words[self.index - 1].name

    def dotted(self, what: str) -> list[str]:
        found = [self.column(what)]
        while self.more() and self.words[self.index].text == ".":
            self.index += 1
            found.append(self.column(what))
        return found

    def columns(self) -> tuple[str, ...]:
        found = [self.column("a column")]
        while self.more() and self.words[self.index].text == ",":
            self.index += 1
            found.append(self.column("a column"))
        if self.more() and self.words[self.index].text == "(":
            raise self.mistake(
                "COLUMN takes names of columns, no functions",
                -1,
                "The models find types, vocabularies and scales in the data.",
            )
        return tuple(found)

    def model_name(self, clause: str) -> str:
        if not self.more() or is_word(self.words[self.index], *_CLAUSES):
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
                f"{name!r} is no name of a model", 0, "Use letters, digits, _ . and -"
            )
        return name

    def attributes(self) -> tuple[dict[str, object], dict[str, object]]:
        """WITH: parameters of the model, and options of the training."""
        params: dict[str, object] = {}
        settings: dict[str, object] = {}
        while True:
            start = self.index
            name = self.dotted("name=value")
            if not self.more() or self.words[self.index].text != "=":
                raise self.mistake(f"expected = after {'.'.join(name)}", 0, "WITH name=value, …")
            self.index += 1
            place, key = self._place(name, params, settings, start)
            place[key] = self._value(name[-1])
            if not self.more() or self.words[self.index].text != ",":
                return params, settings
            self.index += 1

    def _place(
        self,
        name: list[str],
        params: dict[str, object],
        settings: dict[str, object],
        start: int,
    ) -> tuple[dict[str, object], str]:
        whole = ".".join(name)
        if whole in _SETTINGS:
            place, key = settings, _SETTINGS[whole]
        elif len(name) == 1 or (len(name) == 2 and name[0] in _PREFIXES):
            place, key = params, name[-1]
        else:
            self.index = start
            raise self.mistake(
                f"there is no setting {whole}",
                0,
                f"Parameters of the model need no prefix; others are {', '.join(_SETTINGS)}.",
            )
        if key in place:
            self.index = start
            raise self.mistake(f"{whole} appears twice", 0, "WITH name=value, …")
        return place, key

    def _value(self, name: str) -> object:
        start = self.index
        while self.more():
            token = self.words[self.index]
            if not token.depth and (token.text == "," or is_word(token, *_CLAUSES)):
                break
            self.index += 1
        if start == self.index:
            raise self.mistake(f"the value of {name} is missing", 0, "WITH name=value, …")
        shown = self.text[self.words[start].start : self.words[self.index - 1].end]
        if shown.lower() in _CONSTANTS:
            return _CONSTANTS[shown.lower()]
        try:
            value: object = ast.literal_eval(shown)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            self.index = start
            raise self.mistake(
                f"the value of {name} is no number, text or list",
                0,
                f"A text needs quotes: {name}='relu'",
            ) from None
        return value
