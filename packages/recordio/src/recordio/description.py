"""The columns or features of data, and their comparison with those that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from recordio.number_ranges import NumberRange, ranges_as_json, ranges_from_json


class Form(StrEnum):
    """The forms of records whose fields are known."""

    TABLE = "table"
    EXAMPLES = "examples"


NUMBER, TEXT, MIXED = "numbers", "text", "numbers and text"
"""Kinds of columns. Those of features are int64, float and bytes."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DataField:
    """A column of a table, or a feature of examples.

    Attributes:
        kind: of its values; empty: none has been seen.
        size: number of values in each record; -1: it differs, or too few records were seen.
        always: whether all records that were seen had it.
    """

    name: str
    kind: str
    size: int = -1
    always: bool = True


@dataclass(frozen=True, slots=True)
class DataDescription:
    """The fields of data; of a table, in the order of its columns.

    Attributes:
        classes: texts of labels and the numbers that a conversion gave them; empty: not known.
        ranges: of the numbers in fields, by name; fields without are not known.
    """

    form: Form
    fields: tuple[DataField, ...]
    classes: tuple[tuple[str, int], ...] = ()
    ranges: Mapping[str, NumberRange] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def merge(self, other: DataDescription) -> DataDescription:
        """Return a description of both data sets, with the fields and the order of this one."""
        theirs = {field.name: field for field in other.fields}
        classes = tuple(sorted({**dict(other.classes), **dict(self.classes)}.items()))
        fields = tuple(_merge(one, theirs.get(one.name)) for one in self.fields)
        return replace(self, fields=fields, classes=classes)

    def in_order_of(self, other: DataDescription) -> DataDescription:
        """Return this description with its columns in another one's order, if both have the same.

        Other columns, and features, which have no order, stay as they are.
        """
        if set(self.names) != set(other.names) or {self.form, other.form} != {Form.TABLE}:
            return self
        mine = {field.name: field for field in self.fields}
        return replace(self, fields=tuple(mine[name] for name in other.names))

    def as_json(self) -> dict[str, Any]:
        """Return JSON-able values."""
        fields = [[one.name, one.kind, one.size, one.always] for one in self.fields]
        classes = {"classes": dict(self.classes)} if self.classes else {}
        ranges = {"ranges": ranges_as_json(self.ranges)} if self.ranges else {}
        return {"form": self.form.value, "fields": fields, **classes, **ranges}


def description_from_json(values: Mapping[str, Any]) -> DataDescription | None:
    """Return what ``as_json`` described; None if it described nothing.

    Raises:
        ValueError, KeyError, TypeError: the values are none of ours.
    """
    if not values:
        return None
    fields = (DataField(str(n), str(k), int(s), bool(a)) for n, k, s, a in values["fields"])
    classes = tuple(sorted((str(t), int(n)) for t, n in values.get("classes", {}).items()))
    ranges = ranges_from_json(values.get("ranges", {}))
    return DataDescription(Form(values["form"]), tuple(fields), classes, ranges)


def _merge(one: DataField, other: DataField | None) -> DataField:
    if other is None:
        return replace(one, always=False)
    kinds = sorted({one.kind, other.kind} - {""})
    return DataField(
        one.name,
        kinds[0] if len(kinds) == 1 else MIXED if kinds else "",
        one.size if one.size == other.size else -1,
        one.always and other.always,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a file's fields with the known ones.

    Attributes:
        problem: why the data cannot be used; empty: it can.
        remedy: what to do about the problem.
        notes: what is done about differences.
        warns: whether the notes tell of something that may be an error.
    """

    problem: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    warns: bool = False


def compare(
    known: DataDescription,
    found: DataDescription,
    source: str,
    *,
    may_lack: bool = False,
    may_differ: bool = False,
    has_labels: bool = True,
) -> Comparison:
    """Compare the fields of a file with the known ones.

    Args:
        source: what the known fields are from, such as "the training data".
        may_lack: whether the file may lack fields, as the data of a prediction has no labels.
        may_differ: whether a column may have values of another kind.
        has_labels: whether the file should have the field that conversions call ``label``.
    """
    word = "column" if known.form is Form.TABLE else "feature"
    if known.form is not found.form:
        forms = {Form.TABLE: "rows of CSV", Form.EXAMPLES: "tf.Examples"}
        return Comparison(
            f"its records are {forms[found.form]}, those of {source} are {forms[known.form]}",
            "Convert the data in the same way.",
        )
    theirs = {field.name: field for field in found.fields}
    missing = [one.name for one in known.fields if one.always and one.name not in theirs]
    extra = [name for name in found.names if name not in known.names]
    others = {_plain(name) for name in extra}
    needed = [name for name in missing if not may_lack or _plain(name) in others]
    if needed:
        instead = f" It has {_list(word, extra)} instead: rename what means the same." * bool(extra)
        return Comparison(
            f"it lacks {_list(word, needed)} of {source}",
            f"Use data with the {word}s of {source}.{instead}",
        )
    differences = [
        f"the {word} {one.name!r} {difference}"
        for one in known.fields
        if one.name in theirs and (difference := _difference(one, theirs[one.name], source))
    ]
    if differences and not may_differ:
        return Comparison(differences[0], f"Write the {word} as in {source}.")
    notes = (*differences[:_SHOWN], *_notes(known, found, source, missing, extra))
    lacks_other = missing != ["label"] or has_labels
    warns = bool(differences) or (lacks_other and bool(missing and (missing[1:] or extra)))
    return Comparison(notes=notes, warns=warns)


def compare_classes(known: DataDescription, found: DataDescription, source: str) -> Comparison:
    """Compare the numbers of a file's labels with the known ones; see ``compare``."""
    mine, theirs = dict(known.classes), dict(found.classes)
    texts = {number: text for text, number in mine.items()}
    for text, number in theirs.items():
        if mine.get(text, number) != number:
            other = f"the label {text!r} is {number}, in {source} {mine[text]}"
        elif texts.get(number, text) != text:
            other = f"the label {number} is {text!r}, in {source} {texts[number]!r}"
        else:
            continue
        return Comparison(
            f"in its labels.json {other}",
            f"Convert it with the numbers of {source}: edl data convert ... --labels labels.json "
            "names the file next to that data. Or convert both together, with --split.",
        )
    return Comparison()


def _plain(name: str) -> str:
    """Return a name as it is compared with others that may mean the same."""
    return "".join(filter(str.isalnum, name.casefold()))


def _difference(known: DataField, found: DataField, source: str) -> str:
    kinds = {known.kind, found.kind}
    if len(kinds - {""}) == 2 and MIXED not in kinds:
        return f"has {found.kind}, in {source} {known.kind}"
    if -1 not in (known.size, found.size) and known.size != found.size:
        return f"has {found.size} values in each record, in {source} {known.size}"
    return ""


def _notes(
    known: DataDescription,
    found: DataDescription,
    source: str,
    missing: Sequence[str],
    extra: Sequence[str],
) -> tuple[str, ...]:
    word = "column" if known.form is Form.TABLE else "feature"
    notes = []
    if missing:
        notes.append(f"{_list(word, missing)} of {source} {_be(missing)} not there")
    if known.form is Form.TABLE:
        if extra:
            be = _be(extra)
            notes.append(f"{_list(word, extra)} {be} not in {source}, and {be} ignored")
        shared = [name for name in found.names if name in known.names]
        if shared != [name for name in known.names if name in shared]:
            notes.append(f"the columns are read in the order of {source}")
    return tuple(notes)


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _list(word: str, names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{word}{'s' * (len(names) > 1)} {', '.join(map(repr, names[:_SHOWN]))}{more}"
